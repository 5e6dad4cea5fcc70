"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `remedy` says what to do and is empty when there is nothing to do."""

    name: str
    ok: bool
    told: str
    remedy: str = ""

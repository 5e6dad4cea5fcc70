"""Query parameters that several routes share."""

from __future__ import annotations

from typing import Literal

Tristate = Literal["true", "false", "any"]


def tristate(value: Tristate) -> bool | None:
    """true, false, or None for any."""
    return {"true": True, "false": False, "any": None}[value]

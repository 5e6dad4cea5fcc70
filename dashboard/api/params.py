"""Query parameters that several routes share."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

Text = Annotated[str, Query(max_length=200)]
Time = Annotated[str | None, Query(max_length=40)]
Tristate = Literal["true", "false", "any"]


def tristate(value: Tristate) -> bool | None:
    """true, false, or None for any."""
    return {"true": True, "false": False, "any": None}[value]

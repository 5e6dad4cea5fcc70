"""The attributes of HTML that Dash takes only by their dashed names."""

from __future__ import annotations

from typing import Any


def aria(**values: str | None) -> dict[str, Any]:
    """`**aria(label="x")` is aria-label="x"; None leaves the attribute out."""
    return {f"aria-{name}": value for name, value in values.items() if value is not None}


def data(**values: str) -> dict[str, Any]:
    """`**data(copy_link="x")` is data-copy-link="x"."""
    return {f"data-{name.replace('_', '-')}": value for name, value in values.items()}

"""The console that commands print on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_UNLIMITED = 2000


def console() -> Console:
    """No markup in what is printed, and no line cut: ids are there to be copied; a narrow terminal wraps by itself."""
    from rich.console import Console

    return Console(highlight=False, markup=False, width=_UNLIMITED)

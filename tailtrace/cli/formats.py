"""Numbers, times and foreign text as the terminal shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def duration(ns: int | float | None) -> str:
    """Four digits and a unit: `1.234 s`, `56.70 ms`, `890 ns`; a dash for unknown."""
    if ns is None:
        return "-"
    for factor, unit in _UNITS:
        if ns >= factor:
            value = ns / factor
            digits = 3 if value < 10 else 2 if value < 100 else 1
            return f"{value:.{digits}f} {unit}"
    return f"{ns:.0f} ns"


def share(part: float | None) -> str:
    """A share of one as per cent; a dash for unknown."""
    return "-" if part is None else f"{100 * part:.1f} %"


def moment(unix_ns: str | int | None) -> str:
    """A time in UTC, to the millisecond."""
    if unix_ns is None:
        return "-"
    seconds, rest = divmod(int(unix_ns), 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d}"


def plain(text: object) -> str:
    """Foreign text with nothing in it that a terminal would obey: control and bidirectional characters are replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))

"""Figures for people: durations, counts, shares, times."""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from typing import Final
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tailtrace.errors import Rejected

DASH: Final = "–"
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
}
_DURATION: Final = re.compile(r"^(\d+(?:\.\d+)?)\s*([a-zµ]*)$")


def duration(ns: int | float | None) -> str:
    """`1.24 s`, `240 ms`, `12.3 µs`: three figures, the unit that suits."""
    if ns is None:
        return DASH
    if ns == 0:
        return "0"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size * 0.9995:
            value = ns / size
            if unit == "s" and value >= 120:
                minutes, seconds = divmod(round(value), 60)
                whole, part = (f"{minutes // 60} h", minutes % 60) if minutes >= 60 else (f"{minutes} min", seconds)
                return f"{whole} {part} {'min' if minutes >= 60 else 's'}" if part else whole
            return f"{_three(value)} {unit}"
    return f"{ns:.0f} ns"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def parse_duration(text: str) -> int | None:
    """`500ms`, `1.5 s`, `250us`; a bare number is milliseconds. None for empty text; Rejected for anything else."""
    if not text.strip():
        return None
    match = _DURATION.match(text.strip().lower())
    unit = _UNITS.get(match[2] or "ms") if match else None
    if match is None or unit is None or len(match[1]) > 12:
        raise Rejected(f"a duration is a number with ns, us, ms, s or m, like 500ms or 1.5s; got {text[:40]!r}")
    return round(float(match[1]) * unit)


def share(value: float | None) -> str:
    """`61 %`, `4.2 %`, `<0.1 %`; a dash where unknown."""
    if value is None:
        return DASH
    percent = value * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"


def growth(value: float) -> str:
    """`+104 %`, `−27 %`; `0 %` for less than half a percent."""
    percent = round(100 * value)
    return f"{'+' if percent > 0 else '−' if percent < 0 else ''}{abs(percent):,} %"


def count(value: int | None) -> str:
    """`12,345`."""
    return DASH if value is None else f"{value:,}"


def byte_count(size: int | float) -> str:
    """`21.4 GB`, in powers of ten."""
    for unit, whole in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= whole:
            return f"{_three(size / whole)} {unit}"
    return f"{size:.0f} B"


def rate(per_second: float | None) -> str:
    """Requests a second, or a minute where that reads better."""
    if per_second is None:
        return DASH
    if per_second >= 1:
        return f"{per_second:,.1f}/s" if per_second < 100 else f"{per_second:,.0f}/s"
    return f"{per_second * 60:.1f}/min"


# The zone that a page's times are written in; a page is drawn in a context of its own, so this is no shared state.
_ZONE: Final[ContextVar[tzinfo]] = ContextVar("zone", default=UTC)
ZONE_COOKIE: Final = "tailtrace_zone"


def use_zone(name: str) -> None:
    """Write this page's times in an IANA zone; UTC for an unknown one."""
    try:
        _ZONE.set(ZoneInfo(unquote(name)[:64]) if name else UTC)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        _ZONE.set(UTC)


def zone_name() -> str:
    """`UTC`, `Europe/Berlin`."""
    return str(_ZONE.get())


def moment(unix_ns: str | int | None) -> str:
    """`2026-11-30 13:05:22` in the page's zone."""
    return DASH if unix_ns is None else _local(unix_ns).strftime("%Y-%m-%d %H:%M:%S")


def clock(unix_ns: str | int | None) -> str:
    """`13:05:22.123` in the page's zone."""
    if unix_ns is None:
        return DASH
    return _local(unix_ns).strftime("%H:%M:%S.") + f"{int(unix_ns) // 1_000_000 % 1000:03d}"


def iso(unix_ns: str | int) -> str:
    """ISO 8601 with milliseconds in the page's zone, for axes."""
    return _local(unix_ns).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(unix_ns) // 1_000_000 % 1000:03d}"


def _local(unix_ns: str | int) -> datetime:
    return datetime.fromtimestamp(int(unix_ns) // 1_000_000_000, _ZONE.get())

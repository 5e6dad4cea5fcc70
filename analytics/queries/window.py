"""Which time range an answer covers: given, or ending at the newest data there is; and which rollup tier serves it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

SECOND_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * SECOND_NS
HOUR_NS: Final = 60 * MINUTE_NS
DAY_NS: Final = 24 * HOUR_NS

_UNITS: Final = {"s": SECOND_NS, "m": MINUTE_NS, "h": HOUR_NS, "d": DAY_NS, "w": 7 * DAY_NS}
_SPAN: Final = re.compile(r"^(\d{1,6})([smhdw])$")
_MAX_POINTS: Final = 120
_STEPS_NS: Final = (
    MINUTE_NS, 2 * MINUTE_NS, 5 * MINUTE_NS, 10 * MINUTE_NS, 15 * MINUTE_NS, 30 * MINUTE_NS,
    HOUR_NS, 2 * HOUR_NS, 3 * HOUR_NS, 6 * HOUR_NS, 12 * HOUR_NS, DAY_NS, 7 * DAY_NS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Window:
    """[since_ns, until_ns) in Unix nanoseconds, both multiples of the tier; `step_ns` is the width of a chart's
    point.
    """

    since_ns: int
    until_ns: int
    tier: str
    step_ns: int

    @property
    def table(self) -> str:
        return {"1m": "rollup_1m", "1h": "rollup_1h", "1d": "rollup_1d"}[self.tier]


def parse_span(text: str) -> int:
    """`15m`, `6h`, `7d` in nanoseconds. Raises Rejected with what is accepted."""
    match = _SPAN.match(text.strip())
    if match is None:
        raise Rejected(f"a time span is a number and one of s, m, h, d, w, like 15m or 7d; got {text[:40]!r}")
    return int(match[1]) * _UNITS[match[2]]


def parse_time(text: str) -> int:
    """Unix nanoseconds, or ISO 8601 (UTC unless it names an offset). Raises Rejected with what is accepted."""
    text = text.strip()
    if re.fullmatch(r"\d{1,19}", text):
        return _bounded(int(text))
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        whole = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() // 1)
        return _bounded(whole * SECOND_NS + moment.microsecond * 1000)
    except (ValueError, OverflowError) as error:
        raise Rejected(f"a time is ISO 8601 or Unix nanoseconds; got {text[:40]!r}") from error


def _bounded(unix_ns: int) -> int:
    if not 0 <= unix_ns < 1 << 62:
        raise Rejected("a time lies between 1970 and 2116, in Unix nanoseconds")
    return unix_ns


def newest_ns(store: Store) -> int | None:
    """End of the newest request, Unix ns; None in an empty store."""
    # Rows are sorted by minute of End, so the newest partition answers without a scan of the others.
    rows = store.query("SELECT toUnixTimestamp64Nano(max(End)) AS newest, count() AS n FROM requests", role="ui")
    return int(rows[0]["newest"]) if rows and rows[0]["n"] else None


def resolve_window(
    store: Store,
    *,
    since: str | None = None,
    until: str | None = None,
    span: str | None = None,
    default_span: str = "1h",
) -> Window | None:
    """The window asked for. Without `until` it ends at the newest data, without `since` it is `span` long.

    None when there is no data and no range was given. Raises Rejected for a range that is empty or cannot be read.
    """
    length = parse_span(span or default_span)
    if until is not None:
        end = parse_time(until)
    else:
        newest = newest_ns(store)
        if newest is None and since is None:
            return None
        end = newest + 1 if newest is not None else parse_time(since or "0") + length
    begin = parse_time(since) if since is not None else end - length
    if since is not None and until is None and end <= begin:
        end = begin + length
    if begin >= end:
        raise Rejected(f"the range is empty: since {begin} is not before until {end}")
    return window_of(max(0, begin), end)


def window_of(begin_ns: int, end_ns: int) -> Window:
    """The window over whole tier cells around [begin_ns, end_ns): minutes to 12 hours, hours to 5 days, else days."""
    length = end_ns - begin_ns
    tier, cell = (
        ("1m", MINUTE_NS) if length <= 12 * HOUR_NS else ("1h", HOUR_NS) if length <= 5 * DAY_NS else ("1d", DAY_NS)
    )
    since = begin_ns // cell * cell
    until = -(-end_ns // cell) * cell
    step = next((s for s in _STEPS_NS if s >= cell and (until - since) / s <= _MAX_POINTS), _STEPS_NS[-1])
    return Window(since, until, tier, step)

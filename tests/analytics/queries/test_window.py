"""Ranges, tiers and times."""

from __future__ import annotations

import pytest
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries.window import (
    DAY_NS,
    HOUR_NS,
    MINUTE_NS,
    parse_span,
    parse_time,
    resolve_window,
    window_of,
)
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store


def test_the_tier_follows_the_length() -> None:
    assert window_of(0, HOUR_NS).tier == "1m"
    assert window_of(0, 12 * HOUR_NS).tier == "1m"
    assert window_of(0, 2 * DAY_NS).tier == "1h"
    assert window_of(0, 30 * DAY_NS).tier == "1d"


def test_a_window_covers_whole_cells_and_few_points() -> None:
    window = window_of(90 * SECOND, 6 * HOUR_NS + SECOND)
    assert (window.since_ns, window.until_ns) == (MINUTE_NS, 6 * HOUR_NS + MINUTE_NS)
    assert window.step_ns == 5 * MINUTE_NS
    for length in (MINUTE_NS, HOUR_NS, DAY_NS, 400 * DAY_NS):
        some = window_of(0, length)
        assert some.step_ns % {"1m": MINUTE_NS, "1h": HOUR_NS, "1d": DAY_NS}[some.tier] == 0
        assert length / some.step_ns <= 120


def test_times_are_iso_or_nanoseconds() -> None:
    assert parse_time("2026-09-21T14:13:20Z") == T0
    assert parse_time("2026-09-21T22:13:20+08:00") == T0
    assert parse_time(str(T0)) == T0
    assert parse_span("15m") == 900 * SECOND
    for bad in ("yesterday", "", "99999999999999999999", "-1"):
        with pytest.raises(Rejected, match="time"):
            parse_time(bad)
    with pytest.raises(Rejected, match="15m or 7d"):
        parse_span("1 fortnight")


def test_without_a_range_it_ends_at_the_newest_data(store: Store) -> None:
    assert resolve_window(store) is None
    insert_requests(store, [request(1, duration_ns=SECOND, end_ns=T0)])
    window = resolve_window(store, span="15m")
    assert window is not None
    assert window.until_ns - MINUTE_NS <= T0 < window.until_ns
    assert window.since_ns <= T0 + 1 - 900 * SECOND < window.since_ns + MINUTE_NS


def test_an_empty_range_is_refused(store: Store) -> None:
    with pytest.raises(Rejected, match="not before"):
        resolve_window(store, since=str(T0), until=str(T0))

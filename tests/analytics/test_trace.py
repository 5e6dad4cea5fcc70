"""A stored trace is read whole by its id, whatever its times."""

from __future__ import annotations

import time

import pytest
from span_by_span import read_trace

from tailtrace.analytics.queries.trace_columns import trace_columns
from tailtrace.analytics.trace import trace_bounds
from tailtrace.ingest.store import Store

TRACE = "0123456789abcdef0123456789abcdef"
NOW_NS = time.time_ns() // 10**9 * 10**9
HOUR_NS = 3_600_000_000_000
_ROW = (
    "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, Duration) "
    "SELECT fromUnixTimestamp64Nano({t:Int64}, 'UTC'), {trace:String}, {span:String}, {d:UInt64}"
)


def add(store: Store, span: str, start_ns: int, duration_ns: int = 1, trace: str = TRACE) -> None:
    store.command(_ROW, {"t": start_ns, "trace": trace, "span": span, "d": duration_ns})


def shown(store: Store) -> list[str]:
    """The spans that pages read."""
    columns = trace_columns(store, TRACE)
    return columns.texts("Id") if columns else []


def test_spans_hours_apart_are_one_trace_in_order(store: Store) -> None:
    add(store, "b", NOW_NS, 30 * HOUR_NS)
    add(store, "c", NOW_NS + 30 * HOUR_NS)
    add(store, "a", NOW_NS - HOUR_NS)
    add(store, "x", NOW_NS, trace="f" * 32)
    found = read_trace(store, TRACE.upper())
    assert [(span.span_id, span.start_unix_ns) for span in found] == [
        ("a", NOW_NS - HOUR_NS),
        ("b", NOW_NS),
        ("c", NOW_NS + 30 * HOUR_NS),
    ]
    assert shown(store) == ["a", "b", "c"]
    assert [span.span_id for span in read_trace(store, TRACE, limit=2)] == ["a", "b"]
    columns = trace_columns(store, TRACE, limit=2)
    assert columns is not None
    assert columns.texts("Id") == ["a", "b"]


def test_spans_of_two_weeks_that_come_one_by_one_and_twice_are_one_trace(store: Store) -> None:
    sunday = 1_790_000_000 * 10**9 // (7 * 24 * HOUR_NS) * 7 * 24 * HOUR_NS + 3 * 24 * HOUR_NS
    late_first = [("c", sunday + 1), ("b", sunday), ("c", sunday + 1), ("a", sunday - 1), ("d", sunday + 26 * HOUR_NS)]
    for span, start in late_first:
        add(store, span, start)
        assert trace_bounds(store, TRACE) is not None
    assert trace_bounds(store, TRACE) == (sunday - 1, sunday + 26 * HOUR_NS + 1)
    assert shown(store) == ["a", "b", "c", "d"]
    partitions = "SELECT uniqExact(_partition_id) AS n FROM {table} WHERE TraceId = {trace:String}"
    for table, least in (("otel_traces", 3), ("otel_traces_trace_id_ts", 2)):
        assert store.query(partitions.replace("{table}", table), {"trace": TRACE}) == [{"n": least}]


@pytest.mark.parametrize("duration", [2**63 - 1, 2**62, 150 * 365 * 24 * HOUR_NS])
def test_a_wrong_duration_hides_no_span(store: Store, duration: int) -> None:
    add(store, "a", NOW_NS, duration)
    add(store, "b", NOW_NS + HOUR_NS)
    assert [span.span_id for span in read_trace(store, TRACE)] == shown(store) == ["a", "b"]
    bounds = trace_bounds(store, TRACE)
    assert bounds is not None
    assert bounds[0] == NOW_NS
    assert bounds[1] >= NOW_NS + HOUR_NS


def test_an_unknown_trace_has_no_spans(store: Store) -> None:
    add(store, "a", NOW_NS)
    assert read_trace(store, "e" * 32) == []
    assert trace_columns(store, "e" * 32) is None
    assert trace_bounds(store, "e" * 32) is None


def add_with_notes(store: Store, parent: str, event: str) -> None:
    """Span `a` with an event 3 ns after its start, and a link."""
    store.command(
        "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, Duration, Events.Timestamp, Events.Name, "
        "Events.Attributes, Links.TraceId, Links.SpanId, Links.TraceState, Links.Attributes) "
        "SELECT fromUnixTimestamp64Nano({t:Int64}, 'UTC'), {trace:String}, 'a', {parent:String}, 9, "
        "[fromUnixTimestamp64Nano({t:Int64} + 3, 'UTC')], [{event:String}], [map()], ['c0ffee'], ['01'], [''], [map()]",
        {"t": NOW_NS, "trace": TRACE, "parent": parent, "event": event},
    )


@pytest.mark.parametrize("limit", [1, 10])
def test_events_and_links_that_engines_go_by_come_with_the_spans(store: Store, limit: int) -> None:
    add(store, "b", NOW_NS + 5)
    add_with_notes(store, "", "QUEUE_START")
    columns = trace_columns(store, TRACE, limit=limit)
    assert columns is not None
    assert columns.texts("Id") == ["a", "b"][:limit]
    assert dict(columns.table["Attributes"][0].as_py()) == {"@event/QUEUE_START/1": "3", "@link": "c0ffee/01"}


def test_other_events_and_links_are_left_where_they_are(store: Store) -> None:
    add_with_notes(store, "p", "exception")
    columns = trace_columns(store, TRACE)
    assert columns is not None
    assert dict(columns.table["Attributes"][0].as_py()) == {}

"""A stored trace as the analysis and the request page see it: spans exactly as sent, read by trace id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tailtrace.ingest.store import Store

MAX_SPANS: Final = 200_000
# A stored duration from here on is a negative one that wrapped round in an unsigned column.
CLOCK_FAULT_DURATION_NS: Final = 1 << 62

# A row for each insert that had spans of it, until merged. Planning a minimum takes longer than reading them.
_BOUNDS: Final = "SELECT Start, End FROM otel_traces_trace_id_ts WHERE TraceId = {trace_id:String}"
UNPLANNED: Final = {"query_plan_enable_optimizations": 0}

# The minutes are named because the table's key begins with them: the engine does not conclude them from the times.
# A minute after 2106 (an end made by a wrong duration) counts as that year's last.
_SPANS = """
WITH (SELECT (min(Start), max(End)) FROM otel_traces_trace_id_ts WHERE TraceId = {trace_id:String}) AS bounds
SELECT SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, ScopeName, StatusCode, StatusMessage,
  toUnixTimestamp64Nano(Timestamp) AS StartNs, Duration, ClockFault, SpanAttributes, ResourceAttributes,
  arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS EventTimes, Events.Name AS EventNames,
  Events.Attributes AS EventAttributes, Links.TraceId AS LinkTraces, Links.SpanId AS LinkSpans
FROM otel_traces
WHERE TraceId = {trace_id:String} AND Timestamp >= bounds.1 AND Timestamp <= bounds.2
  AND toStartOfMinute(Timestamp) >= toStartOfMinute(bounds.1)
  AND toStartOfMinute(Timestamp) <= toStartOfMinute(bounds.2)
ORDER BY StartNs, SpanId
LIMIT {limit:UInt64}
"""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened inside a span at one instant."""

    name: str
    unix_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """A span of this or another trace that this one names as its cause."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Span:
    """One span as stored; ids are lower-case hex, times integer nanoseconds since 1970 (UTC)."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: str
    service: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    resource: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    status: str = "Unset"
    status_message: str = ""
    events: Sequence[Event] = ()
    links: Sequence[Link] = ()
    clock_fault: bool = False

    @property
    def duration_ns(self) -> int:
        return self.end_unix_ns - self.start_unix_ns


def trace_bounds(store: Store, trace_id: str) -> tuple[int, int] | None:
    """Earliest start and latest end of a trace's spans, ns since 1970; None when none is stored."""
    rows = store.query_arrow(_BOUNDS, {"trace_id": trace_id}, settings=UNPLANNED)
    if not rows.num_rows:
        return None
    starts, ends = (rows[name].cast(pa.int64()).to_numpy() for name in ("Start", "End"))
    return int(starts.min()), int(ends.max())


def read_trace(store: Store, trace_id: str, *, limit: int = MAX_SPANS) -> list[Span]:
    """Every stored span of a trace, by start then span id, at most `limit`; empty when none is stored.

    Duplicates sent twice are in it: repairing the tree is the judge's work.
    """
    trace_id = trace_id.lower()
    parameters = {"trace_id": trace_id, "limit": limit}
    return [span_of_row(trace_id, row) for row in store.query_arrow(_SPANS, parameters).to_pylist()]


def span_of_row(trace_id: str, row: Mapping[str, Any]) -> Span:
    """A row of `otel_traces`, as selected by `read_trace`, as a Span."""
    duration = int(row["Duration"])
    fault = bool(row["ClockFault"]) or duration >= CLOCK_FAULT_DURATION_NS
    start = int(row["StartNs"])
    return Span(
        trace_id=trace_id,
        span_id=row["SpanId"],
        parent_span_id=row["ParentSpanId"],
        name=row["SpanName"],
        kind=row["SpanKind"],
        service=row["ServiceName"],
        start_unix_ns=start,
        end_unix_ns=start if fault else start + duration,
        attributes=dict(row["SpanAttributes"]),
        resource=dict(row["ResourceAttributes"]),
        scope=row["ScopeName"],
        status=row["StatusCode"],
        status_message=row["StatusMessage"],
        events=tuple(
            Event(name, int(at), dict(attributes))
            for name, at, attributes in zip(row["EventNames"], row["EventTimes"], row["EventAttributes"], strict=True)
        ),
        links=tuple(Link(*pair) for pair in zip(row["LinkTraces"], row["LinkSpans"], strict=True)),
        clock_fault=fault,
    )

"""One span with everything it carried: attributes, resource, events, links, as received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tailtrace.analytics.queries.trace_id import span_id as checked_span
from tailtrace.analytics.queries.trace_id import trace_id as checked_trace
from tailtrace.analytics.trace import trace_bounds
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A moment inside a span."""

    name: str
    time_unix_ns: str
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class SpanLink:
    """Another span this one points to."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class SpanDetail:
    """Times are as stored, never corrected."""

    trace_id: str
    span_id: str
    parent_span_id: str
    service: str
    name: str
    kind: str
    stage: str
    status: str
    status_message: str
    start_unix_ns: str
    end_unix_ns: str
    duration_ns: int
    received_at: str
    scope: str
    attributes: dict[str, str]
    resource: dict[str, str]
    events: list[SpanEvent]
    links: list[SpanLink]


_SQL: Final = """
SELECT ParentSpanId, ServiceName, SpanName, SpanKind, Stage, StatusCode, StatusMessage, ScopeName,
  toUnixTimestamp64Nano(Timestamp) AS StartNs, Duration, toString(ReceivedAt) AS Received,
  mapKeys(SpanAttributes) AS AttributeKeys, mapValues(SpanAttributes) AS AttributeValues,
  mapKeys(ResourceAttributes) AS ResourceKeys, mapValues(ResourceAttributes) AS ResourceValues,
  arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS EventTimes, Events.Name AS EventNames,
  arrayMap(m -> mapKeys(m), Events.Attributes) AS EventKeys,
  arrayMap(m -> mapValues(m), Events.Attributes) AS EventValues,
  Links.TraceId AS LinkTraces, Links.SpanId AS LinkSpans
FROM otel_traces
WHERE TraceId = {trace:String} AND SpanId = {span:String}
  AND toStartOfMinute(Timestamp) >= toStartOfMinute(fromUnixTimestamp64Nano({first:Int64}, 'UTC'))
  AND toStartOfMinute(Timestamp) <= toStartOfMinute(fromUnixTimestamp64Nano({last:Int64}, 'UTC'))
ORDER BY ReceivedAt LIMIT 1
"""


def get_span(store: Store, trace_id: str, span_id: str) -> SpanDetail:
    """One span. Raises Rejected for malformed ids, NotFound when it is not stored."""
    trace, span = checked_trace(trace_id), checked_span(span_id)
    bounds = trace_bounds(store, trace)
    where = {"trace": trace, "span": span}
    rows = store.query(_SQL, {**where, "first": bounds[0], "last": bounds[1]}, role="ui") if bounds else []
    if not rows:
        raise NotFound(f"no span {span} is stored under trace id {trace}")
    return _detail(trace, span, rows[0])


def _detail(trace: str, span: str, row: dict[str, Any]) -> SpanDetail:
    start = int(row["StartNs"])
    events = zip(row["EventNames"], row["EventTimes"], row["EventKeys"], row["EventValues"], strict=True)
    return SpanDetail(
        trace_id=trace,
        span_id=span,
        parent_span_id=row["ParentSpanId"],
        service=row["ServiceName"],
        name=row["SpanName"],
        kind=row["SpanKind"],
        stage=row["Stage"],
        status=row["StatusCode"],
        status_message=row["StatusMessage"],
        start_unix_ns=str(start),
        end_unix_ns=str(start + int(row["Duration"])),
        duration_ns=int(row["Duration"]),
        received_at=str(row["Received"]).replace(" ", "T") + "Z",
        scope=row["ScopeName"],
        attributes=dict(sorted(zip(row["AttributeKeys"], row["AttributeValues"], strict=True))),
        resource=dict(sorted(zip(row["ResourceKeys"], row["ResourceValues"], strict=True))),
        events=[
            SpanEvent(name, str(int(at)), dict(zip(keys, values, strict=True))) for name, at, keys, values in events
        ],
        links=[SpanLink(t, s) for t, s in zip(row["LinkTraces"], row["LinkSpans"], strict=True)],
    )

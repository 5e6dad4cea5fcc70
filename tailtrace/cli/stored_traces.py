"""Stored traces as OTLP/JSON bodies, read through the server's read-only SQL.

Times, ids, names, status, events and links are those that were sent. Attributes come back as the text they are stored
as; a span that ended before it began comes back as one that ended a nanosecond before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tailtrace.cli.stored_pages import PAGE, ask, attributes

if TYPE_CHECKING:
    from tailtrace.cli.client import ApiClient

_TRACES_A_QUERY: Final = 200
SPANS_A_BODY: Final = 2_000
_KINDS: Final = {"Internal": 1, "Server": 2, "Client": 3, "Producer": 4, "Consumer": 5}
_STATUS: Final = {"Ok": 1, "Error": 2}
_TIME: Final = "fromUnixTimestamp64Nano({{{0}:Int64}}, 'UTC')"

_FOUND: Final = f"""
SELECT TraceId, toUnixTimestamp64Nano(min(Start)) AS at FROM otel_traces_trace_id_ts
WHERE empty({{service:String}}) OR TraceId IN (
  SELECT TraceId FROM otel_traces WHERE ServiceName = {{service:String}}
    AND Timestamp >= {_TIME.format("since")} AND Timestamp <= {_TIME.format("until")})
GROUP BY TraceId
HAVING min(Start) >= {_TIME.format("since")} AND min(Start) <= {_TIME.format("until")}
  AND (at, TraceId) > ({{after:Int64}}, {{id:String}})
ORDER BY at, TraceId
"""
_BOUNDS: Final = """
SELECT toUnixTimestamp64Nano(min(Start)), toUnixTimestamp64Nano(max(End)) FROM otel_traces_trace_id_ts
WHERE TraceId IN {traces:Array(String)}
"""
_NANOS: Final = "arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp)"
_SPANS: Final = f"""
SELECT TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, toUnixTimestamp64Nano(Timestamp) AS start,
  Duration, ClockFault, StatusCode, StatusMessage, ResourceAttributes, ScopeName, ScopeVersion, SpanAttributes,
  {_NANOS} AS event_times, Events.Name, Events.Attributes, Links.TraceId, Links.SpanId, Links.TraceState,
  Links.Attributes
FROM otel_traces
WHERE TraceId IN {{traces:Array(String)}}
  AND Timestamp >= {_TIME.format("first")} AND Timestamp <= {_TIME.format("last")}
ORDER BY TraceId, Timestamp, SpanId, Duration, SpanName, cityHash64(mapValues(SpanAttributes))
LIMIT {{size:UInt32}} OFFSET {{at:UInt64}}
"""


def traces_between(api: ApiClient, since_ns: int, until_ns: int, service: str) -> Iterator[str]:
    """Ids of the traces that began in this time, oldest first."""
    after, last = -1, ""
    while True:
        bounds = {"since": since_ns, "until": until_ns, "service": service, "after": after, "id": last}
        rows = ask(api, _FOUND, bounds)
        yield from (str(row[0]) for row in rows)
        if len(rows) < PAGE:
            return
        last, after = str(rows[-1][0]), int(rows[-1][1])


def bodies(api: ApiClient, traces: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Export requests of at most 2,000 spans. Traces that are not stored are left out."""
    while group := list(islice(traces, _TRACES_A_QUERY)):
        (first, last), *_ = ask(api, _BOUNDS, {"traces": group}) or [[0, 0]]
        at = 0
        while rows := ask(api, _SPANS, {"traces": group, "first": first, "last": last, "size": PAGE, "at": at}):
            for start in range(0, len(rows), SPANS_A_BODY):
                yield _body(rows[start : start + SPANS_A_BODY])
            if len(rows) < PAGE:
                break
            at += PAGE


def count_spans(body: dict[str, Any]) -> int:
    """Spans of a body."""
    return sum(len(scope["spans"]) for each in body["resourceSpans"] for scope in each["scopeSpans"])


def _body(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Rows of spans, gathered under their resources and scopes."""
    resources: dict[str, dict[str, Any]] = {}
    for row in rows:
        resource, scope_name, scope_version = row[11:14]
        entry = resources.setdefault(str(resource), {"resource": {"attributes": attributes(resource)}, "scopes": {}})
        scope = entry["scopes"].setdefault(
            (scope_name, scope_version), {"scope": {"name": scope_name, "version": scope_version}, "spans": []}
        )
        scope["spans"].append(_span(row))
    return {
        "resourceSpans": [
            {"resource": entry["resource"], "scopeSpans": list(entry["scopes"].values())}
            for entry in resources.values()
        ]
    }


def _span(row: Sequence[Any]) -> dict[str, Any]:
    trace, span, parent, state, name, kind, start, duration, clock_fault, status, message = row[:11]
    given, times, names, of_events, link_traces, link_spans, link_states, of_links = row[14:]
    end = start - 1 if clock_fault else start + duration
    return {
        "traceId": trace, "spanId": span, "parentSpanId": parent, "traceState": state, "name": name,
        "kind": _KINDS.get(kind, 0), "startTimeUnixNano": str(start), "endTimeUnixNano": str(end),
        "attributes": attributes(given),
        "events": [
            {"timeUnixNano": str(at), "name": event, "attributes": attributes(own)}
            for at, event, own in zip(times, names, of_events, strict=True)
        ],
        "links": [
            {"traceId": to, "spanId": to_span, "traceState": its, "attributes": attributes(own)}
            for to, to_span, its, own in zip(link_traces, link_spans, link_states, of_links, strict=True)
        ],
        "status": {"code": _STATUS.get(status, 0), "message": message},
    }  # fmt: skip

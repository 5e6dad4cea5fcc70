"""Log records that were written while a trace, or one span of it, ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.queries.trace_id import span_id as checked_span
from tailtrace.analytics.queries.trace_id import trace_id as checked_trace
from tailtrace.analytics.queries.window import MINUTE_NS
from tailtrace.analytics.trace import trace_bounds
from tailtrace.ingest.store import Store

MOST: Final = 200
_LONGEST: Final = 4_000  # characters of a body


@dataclass(frozen=True, slots=True)
class LogLine:
    """One record. `body` is cut at 4,000 characters."""

    time_unix_ns: str
    span_id: str
    service: str
    severity: str
    severity_number: int
    body: str
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class TraceLogs:
    """The first `shown` of `total` records in time order."""

    trace_id: str
    span_id: str | None
    logs: list[LogLine]
    shown: int
    total: int


_SQL: Final = """
SELECT toUnixTimestamp64Nano(Timestamp) AS at, SpanId AS span, ServiceName AS service, SeverityText AS severity,
  SeverityNumber AS number, substringUTF8(Body, 1, {longest:UInt32}) AS body, mapKeys(LogAttributes) AS keys,
  mapValues(LogAttributes) AS values, count() OVER () AS total
FROM otel_logs
WHERE TraceId = {trace:String} AND ({span:String} = '' OR SpanId = {span:String})
  AND toStartOfFiveMinutes(Timestamp) >= toStartOfFiveMinutes(fromUnixTimestamp64Nano({first:Int64}, 'UTC'))
  AND toStartOfFiveMinutes(Timestamp) <= toStartOfFiveMinutes(fromUnixTimestamp64Nano({last:Int64}, 'UTC'))
ORDER BY at, span LIMIT {limit:UInt32}
"""


def trace_logs(store: Store, trace_id: str, *, span_id: str | None = None, limit: int = MOST) -> TraceLogs:
    """Records that name the trace, and the span where one is given. None for a trace without spans: its time is
    unknown. Raises Rejected for malformed ids.
    """
    trace = checked_trace(trace_id)
    span = checked_span(span_id) if span_id else ""
    bounds = trace_bounds(store, trace)
    if bounds is None:
        return TraceLogs(trace, span or None, [], 0, 0)
    values = {
        "trace": trace, "span": span, "longest": _LONGEST, "limit": limit, "first": bounds[0] - MINUTE_NS,
        "last": bounds[1] + MINUTE_NS,
    }  # fmt: skip
    rows = store.query(_SQL, values, role="ui")
    lines = [
        LogLine(
            str(int(row["at"])), row["span"], row["service"], row["severity"], int(row["number"]), row["body"],
            dict(zip(row["keys"], row["values"], strict=True)),
        )
        for row in rows
    ]  # fmt: skip
    return TraceLogs(trace, span or None, lines, len(lines), int(rows[0]["total"]) if rows else 0)

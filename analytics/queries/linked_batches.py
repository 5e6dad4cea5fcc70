"""Batches that an engine tells as traces of their own, joined to a request by their links: TGI's `batch` spans.

Each is one step of the engine and links to the requests in it, so it says what other engines' steps say: how many ran
together, how long it took, and who they were.
"""

from __future__ import annotations

from typing import Final

from tailtrace.analytics.queries.counters import Lane, Lanes, Line
from tailtrace.ingest.store import Store

ENGINES: Final = frozenset({"tgi"})
MOST_BATCHES: Final = 4000

_OF_TRACE: Final = (
    " FROM otel_traces WHERE ScopeName = 'opentelemetry-otlp' AND SpanName = 'batch'"
    " AND has(`Links.TraceId`, {trace:String})"
    " AND toStartOfMinute(Timestamp) >= toStartOfMinute(fromUnixTimestamp64Nano({since:Int64}, 'UTC'))"
    " AND Timestamp >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')"
    " AND Timestamp <= fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
)
_BATCHES: Final = (
    "SELECT toUnixTimestamp64Nano(Timestamp) AS at, any(Duration) AS took,"
    " any(toUInt32OrNull(SpanAttributes['batch_size'])) AS size"
    + _OF_TRACE
    + " GROUP BY at, SpanId ORDER BY at LIMIT {most:UInt32}"
)
OTHERS: Final = "SELECT arrayJoin(`Links.TraceId`) AS id" + _OF_TRACE
"""Traces of the requests that were in one of them, the request's own too; parameters trace, since, until."""


def batch_lanes(store: Store, trace_id: str, since_ns: int, until_ns: int) -> Lanes:
    """`running` and `step_time` at each batch that the request of this trace was in, or waited for."""
    values = {"trace": trace_id, "since": since_ns, "until": until_ns, "most": MOST_BATCHES}
    rows = store.query(_BATCHES, values, role="ui")
    sized = [row for row in rows if row["size"] is not None]
    lanes = [
        Lane(lane, unit, None, [Line("", [str(row["at"]) for row in of], [float(value(row)) for row in of])])
        for lane, unit, of, value in (
            ("running", "", sized, lambda row: row["size"]),
            ("step_time", "s", rows, lambda row: int(row["took"]) / 1e9),
        )
        if of
    ]
    return Lanes(str(since_ns), str(until_ns), lanes, {})

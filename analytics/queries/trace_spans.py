"""The spans of one trace as a tree in reading order: what the waterfall and the API list. Attributes are read one
span at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.ingest.store import Store


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span. `depth` counts from 0; `size` is how many spans of the answer lie below it. Rows follow the tree,
    parents first.
    """

    span_id: str
    parent_span_id: str
    service: str
    name: str
    kind: str
    stage: str
    status: str
    start_unix_ns: str
    duration_ns: int
    depth: int
    size: int
    orphan: bool
    simulated: bool


_BOUNDS: Final = """
SELECT count() AS n, toUnixTimestamp64Nano(min(Start)) AS first, toUnixTimestamp64Nano(max(End)) AS last
FROM otel_traces_trace_id_ts WHERE TraceId = {trace:String}
"""
_SPANS: Final = """
SELECT SpanId, any(ParentSpanId) AS ParentSpanId, any(ServiceName) AS ServiceName, any(SpanName) AS SpanName,
  any(SpanKind) AS SpanKind,
  any(Stage) AS Stage, any(SpanAttributes['tailtrace.stage_name']) AS StageName, any(StatusCode) AS StatusCode,
  toUnixTimestamp64Nano(min(Timestamp)) AS StartNs, max(Duration) AS Duration,
  any(ResourceAttributes['tailtrace.simulated']) = 'true' AS Simulated
FROM otel_traces
WHERE TraceId = {trace:String} AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp <= fromUnixTimestamp64Nano({last:Int64}, 'UTC')
  AND toStartOfMinute(Timestamp) >= toStartOfMinute(fromUnixTimestamp64Nano({first:Int64}, 'UTC'))
  AND toStartOfMinute(Timestamp) <= toStartOfMinute(fromUnixTimestamp64Nano({last:Int64}, 'UTC'))
GROUP BY SpanId ORDER BY StartNs, SpanId
"""


def trace_bounds(store: Store, trace: str) -> tuple[int, int] | None:
    """First start and last end of a trace's spans, Unix ns; None when it has none."""
    row = store.query(_BOUNDS, {"trace": trace}, role="ui")[0]
    return (int(row["first"]), int(row["last"])) if row["n"] else None


def read_spans(store: Store, trace: str) -> list[dict[str, Any]]:
    """Narrow rows of a trace's spans by start, each id once (a resent span is the same span)."""
    bounds = trace_bounds(store, trace)
    if bounds is None:
        return []
    return store.query(_SPANS, {"trace": trace, "first": bounds[0], "last": bounds[1]}, role="ui")


def span_rows(spans: Sequence[Mapping[str, Any]]) -> list[SpanRow]:
    """Rows in tree order. A span whose parent is absent, or that lies on a cycle, stands at the top, marked orphan
    when it names a parent.
    """
    by_id = {span["SpanId"]: span for span in spans}
    children: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    tops = []
    for span in spans:
        parent = span["ParentSpanId"]
        if parent and parent in by_id and parent != span["SpanId"]:
            children[parent].append(span)
        else:
            tops.append(span)
    order: list[tuple[Mapping[str, Any], int]] = []
    seen: set[str] = set()
    _walk(tops, children, order, seen)
    for span in spans:  # what only a cycle reaches
        if span["SpanId"] not in seen:
            _walk([span], children, order, seen)
    sizes = _sizes([depth for _, depth in order])
    return [_span_row(span, depth, size, by_id) for (span, depth), size in zip(order, sizes, strict=True)]


def _walk(
    tops: Sequence[Mapping[str, Any]],
    children: Mapping[str, Sequence[Mapping[str, Any]]],
    order: list[tuple[Mapping[str, Any], int]],
    seen: set[str],
) -> None:
    """Depth first without recursion: traces can be deeper than Python's stack."""
    stack = [(span, 0) for span in reversed(tops)]
    while stack:
        span, depth = stack.pop()
        if span["SpanId"] in seen:
            continue
        seen.add(span["SpanId"])
        order.append((span, depth))
        stack.extend((child, depth + 1) for child in reversed(children.get(span["SpanId"], ())))


def _sizes(depths: Sequence[int]) -> list[int]:
    """Number of following rows that are deeper, for each row of a tree in reading order."""
    sizes = [0] * len(depths)
    open_rows: list[int] = []
    for index, depth in enumerate(depths):
        while open_rows and depths[open_rows[-1]] >= depth:
            top = open_rows.pop()
            sizes[top] = index - top - 1
        open_rows.append(index)
    for top in open_rows:
        sizes[top] = len(depths) - top - 1
    return sizes


def _span_row(span: Mapping[str, Any], depth: int, size: int, by_id: Mapping[str, Any]) -> SpanRow:
    parent = span["ParentSpanId"]
    return SpanRow(
        span_id=span["SpanId"],
        parent_span_id=parent,
        service=span["ServiceName"],
        name=span["StageName"] or span["SpanName"],
        kind=span["SpanKind"],
        stage=span["Stage"],
        status=span["StatusCode"],
        start_unix_ns=str(int(span["StartNs"])),
        duration_ns=int(span["Duration"]),
        depth=depth,
        size=size,
        orphan=bool(parent) and parent not in by_id,
        simulated=bool(span["Simulated"]),
    )

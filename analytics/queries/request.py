"""One trace in full: its requests, stage table, critical path, derived intervals and spans."""

from __future__ import annotations

from dataclasses import dataclass

from tailtrace.analytics.queries.critical_path import (
    Interval,
    Segment,
    derived_of,
    entry_of,
    intervals,
    longest,
    path_of,
    segments,
)
from tailtrace.analytics.queries.request_head import StageLine, head_of, judged_rows, stored_rows
from tailtrace.analytics.queries.request_row import RequestRow
from tailtrace.analytics.queries.trace_columns import trace_columns
from tailtrace.analytics.queries.trace_id import trace_id as checked
from tailtrace.analytics.queries.trace_spans import SpanRow, span_rows
from tailtrace.analytics.queries.verdicts import RequestVerdict, request_verdict
from tailtrace.ingest.store import Store
from tailtrace.stages import BY_NAME, UNEXPLAINED

MAX_SPANS = 20_000


@dataclass(frozen=True, slots=True)
class RequestDetail:
    """`critical_path` and `stage_table` are of `requests[0]`; of a path of more than 20,000 segments
    (`critical_path_total` says how many) only the longest are here, in time order. `spans` holds `spans_shown` of
    `spans_total`, parents first. `verdict` is of `requests[0]`, null until the jobs have judged it.
    """

    trace_id: str
    requests: list[RequestRow]
    stage_table: list[StageLine]
    critical_path: list[Segment]
    critical_path_total: int
    derived: list[Interval]
    spans: list[SpanRow]
    spans_total: int
    spans_shown: int
    stored: bool
    simulated: bool
    conditions: dict[str, str]
    verdict: RequestVerdict | None
    definitions: dict[str, str]


def get_request(
    store: Store, trace_id: str, *, span_id: str | None = None, max_spans: int = MAX_SPANS
) -> RequestDetail:
    """Everything about a trace. Raises Rejected for a malformed id, NotFound when nothing is stored under it."""
    trace = checked(trace_id)
    rows = stored_rows(store, trace)
    columns = trace_columns(store, trace, resources=not rows)
    head = head_of(trace, rows or judged_rows(columns, span_id), stored=bool(rows), span_id=span_id)
    first = head.requests[0]
    ids = columns.texts("Id") if columns else []
    entry = entry_of(columns, ids, first.span_id) if columns else None
    path = path_of(columns, entry) if columns and entry is not None else []
    spans = span_rows(columns, max_spans) if columns else []
    return RequestDetail(
        trace_id=head.trace_id,
        requests=head.requests,
        stage_table=head.stage_table,
        critical_path=segments(columns, ids, longest(path, max_spans)) if columns else [],
        critical_path_total=len(path),
        derived=intervals(columns, ids, derived_of(columns)) if columns else [],
        spans=spans,
        spans_total=len(ids),
        spans_shown=len(spans),
        stored=head.stored,
        simulated=first.simulated or any(span.simulated for span in spans),
        conditions=head.conditions,
        verdict=request_verdict(store, first) if head.stored else None,
        definitions=definitions([line.stage for line in head.stage_table]),
    )


def definitions(stages: list[str]) -> dict[str, str]:
    """What each stage means, in the vocabulary's words."""
    words = {name: stage.meaning for name, stage in BY_NAME.items()}
    words[UNEXPLAINED] = "time of the entry span that no other span covers"
    return {stage: words[stage] for stage in stages if stage in words}

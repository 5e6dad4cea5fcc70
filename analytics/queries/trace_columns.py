"""The spans of one trace as columns, never one object a span: what keeps a trace of 20,000 spans quick to open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace.analytics.engines import notes
from tailtrace.analytics.judge import judge_batch
from tailtrace.analytics.judge.attributes import Attributes
from tailtrace.analytics.judge.batch import Batch, Resources, from_inbox, span_ids
from tailtrace.analytics.judge.judge import JudgedBatch
from tailtrace.analytics.trace import CLOCK_FAULT_DURATION_NS, MAX_SPANS, UNPLANNED, trace_bounds
from tailtrace.ingest.store import Store

_OF_TRACE: Final = """FROM otel_traces
  PREWHERE otel_traces.TraceId = {trace_id:String}
  WHERE toStartOfMinute(Timestamp) >= toStartOfMinute(fromUnixTimestamp64Nano({start:Int64}))
    AND toStartOfMinute(Timestamp) <= toStartOfMinute(fromUnixTimestamp64Nano({end:Int64}))"""
_HASH: Final = "cityHash64(mapKeys(ResourceAttributes), mapValues(ResourceAttributes))"

# As stored and in no order: planning a column made from others, or a sort, takes the engine longer than making it here,
# and planning takes longer than reading ten spans. The statement says itself what is read first, and by which key.
_SPANS: Final = f"""
SELECT SpanId AS Id, ParentSpanId AS Parent, Timestamp, Duration, ClockFault AS Fault, SpanKind AS Kind,
  ServiceName AS Service, SpanName AS Name, ScopeName AS Scope, StatusCode AS Status, SpanAttributes AS Attributes,
  {_HASH} AS Resource, ResourceAttributes['tailtrace.simulated'] = 'true' AS Simulated,
  Events.Name AS EventNames, Links.TraceId AS LinkedTraces
{_OF_TRACE}
LIMIT {{limit:UInt64}} + 1"""
_FIRST_SPANS: Final = _SPANS.replace("LIMIT {limit:UInt64} + 1", "ORDER BY Timestamp LIMIT {limit:UInt64}")
_NOTED: Final = f"mapConcat(SpanAttributes, CAST({notes.sql('otel_traces')}, 'Map(LowCardinality(String), String)'))"
_RESOURCES: Final = f"SELECT {_HASH} AS Hash, any(ResourceAttributes) AS Attributes {_OF_TRACE} GROUP BY Hash"


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """Spans by start then id, each id once; `judged.batch.row` leads from the judge's spans back to these."""

    table: pa.Table
    judged: JudgedBatch

    @property
    def batch(self) -> Batch:
        return self.judged.batch

    def numbers(self, name: str) -> Any:
        return self.table[name].to_numpy()

    def texts(self, name: str) -> list[str]:
        return [text or "" for text in self.table[name].cast(pa.string()).to_pylist()]

    def codes(self, name: str) -> tuple[list[int], list[str]]:
        """A column of few texts as numbers, and the texts they stand for."""
        column = self.table[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        numbers: list[int] = pc.fill_null(column.indices, 0).to_pylist()
        return numbers, column.dictionary.cast(pa.string()).to_pylist()


def trace_columns(
    store: Store, trace_id: str, *, resources: bool = False, limit: int = MAX_SPANS
) -> TraceColumns | None:
    """The stored spans of a trace and what the judge makes of them; None when none is stored. `resources` are read
    where `judged.rows` must say which process, model and GPU served: paths and trees do without.
    """
    bounds = trace_bounds(store, trace_id)
    if bounds is None:
        return None
    parameters = {"trace_id": trace_id, "start": bounds[0], "end": bounds[1], "limit": limit}
    statement = _SPANS
    rows = store.query_arrow(statement, parameters, role="ui", settings=UNPLANNED)
    if not rows.num_rows:
        return None
    if rows.num_rows > limit:
        statement = _FIRST_SPANS
        rows = store.query_arrow(statement, parameters, role="ui", settings=UNPLANNED)
    if _noted(rows):
        statement = statement.replace("SpanAttributes AS Attributes", f"{_NOTED} AS Attributes")
        rows = store.query_arrow(statement, parameters, role="ui", settings=UNPLANNED)
    known: Resources = {}
    if resources:
        known = {int(row["Hash"]): row["Attributes"] for row in store.query(_RESOURCES, parameters, role="ui")}
    table = _inbox(rows, trace_id)
    return TraceColumns(table, judge_batch(from_inbox(table), known))


def _noted(rows: pa.Table) -> bool:
    """Whether a span has events or links that the engines' readers go by: their times are read only then."""
    names = pc.unique(rows["EventNames"].combine_chunks().flatten().cast(pa.string()))
    if pc.any(pc.is_in(names, pa.array(notes.EVENTS, pa.string()))).as_py():
        return True
    linked = pc.greater(pc.list_value_length(rows["LinkedTraces"]), 0)
    return bool(pc.any(pc.and_(linked, pc.equal(rows["Parent"], ""))).as_py())


def _inbox(rows: pa.Table, trace_id: str) -> pa.Table:
    """Stored spans of one trace with the columns of the inbox, and those that pages show. Of spans of one id the
    earliest and then the longest stands for all, as in the judge.
    """
    ids, parents = span_ids(rows["Id"].to_pylist()), span_ids(rows["Parent"].to_pylist())
    faults = rows["Fault"].to_numpy().astype(np.bool_) | (rows["Duration"].to_numpy() >= CLOCK_FAULT_DURATION_NS)
    durations = np.where(faults, np.uint64(0), rows["Duration"].to_numpy().astype(np.uint64))
    starts = rows["Timestamp"].cast(pa.int64()).to_numpy()
    order = np.lexsort((parents, ~durations, ids, starts))
    first = np.sort(np.unique(ids[order], return_index=True)[1])
    order = order[first]
    rows = rows.take(pa.array(order)).combine_chunks()
    attributes = Attributes(rows["Attributes"].combine_chunks())
    count = len(order)
    stage_names = attributes.text("tailtrace.stage_name")
    made = {
        "TraceId": pa.array([bytes.fromhex(trace_id)[:16].rjust(16, b"\0")] * count, pa.binary(16)),
        "SpanId": ids[order],
        "ParentSpanId": parents[order],
        "StartNs": starts[order],
        "DurationNs": durations[order],
        "ClockFault": faults[order],
        "Stage": attributes.text("tailtrace.stage"),
        "StageName": stage_names,
        "Blocking": ~attributes.equals("tailtrace.blocking", "false"),
        "HasAttributes": np.ones(count, np.bool_),
        "Shown": pc.if_else(pc.equal(stage_names, ""), rows["Name"], stage_names),
    }
    for name, column in made.items():
        rows = rows.append_column(name, column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column))
    return rows

"""The spans of one trace as columns, never one object a span: what keeps a trace of 20,000 spans quick to open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailtrace.analytics.engines import notes
from tailtrace.analytics.judge import judge_batch
from tailtrace.analytics.judge.batch import Batch, Resources, from_inbox
from tailtrace.analytics.judge.judge import JudgedBatch
from tailtrace.analytics.trace import CLOCK_FAULT_DURATION_NS, MAX_SPANS, trace_bounds
from tailtrace.ingest.store import Store

_OF_TRACE: Final = """FROM otel_traces
  WHERE otel_traces.TraceId = {trace_id:String}
    AND Timestamp >= fromUnixTimestamp64Nano({start:Int64}) AND Timestamp <= fromUnixTimestamp64Nano({end:Int64})
    AND toStartOfMinute(Timestamp) >= toStartOfMinute(fromUnixTimestamp64Nano({start:Int64}))
    AND toStartOfMinute(Timestamp) <= toStartOfMinute(fromUnixTimestamp64Nano({end:Int64}))"""
_HASH: Final = "cityHash64(mapKeys(ResourceAttributes), mapValues(ResourceAttributes))"

# The columns of the inbox, from the stored spans; those that the judge does not need follow. Of spans of one id the
# earliest and then the longest stands for all, as in the judge. One level and no notes: planning this takes longer than
# reading ten spans.
_SPANS: Final = f"""
SELECT toFixedString(substring(unhex(otel_traces.TraceId), 1, 16), 16) AS TraceId,
  reinterpretAsUInt64(reverse(unhex(otel_traces.SpanId))) AS SpanId,
  reinterpretAsUInt64(reverse(unhex(otel_traces.ParentSpanId))) AS ParentSpanId,
  toUnixTimestamp64Nano(Timestamp) AS StartNs, if(ClockFault, 0, Duration) AS DurationNs,
  Duration >= {{fault:UInt64}} AS ClockFault, SpanKind AS Kind, ServiceName AS Service, SpanName AS Name,
  ScopeName AS Scope, StatusCode AS Status, SpanAttributes['tailtrace.stage'] AS Stage,
  SpanAttributes['tailtrace.stage_name'] AS StageName, SpanAttributes['tailtrace.blocking'] != 'false' AS Blocking,
  {_HASH} AS Resource, true AS HasAttributes, SpanAttributes AS Attributes,
  otel_traces.SpanId AS Id, otel_traces.ParentSpanId AS Parent, if(StageName != '', StageName, SpanName) AS Shown,
  ResourceAttributes['tailtrace.simulated'] = 'true' AS Simulated, {notes.any_sql("otel_traces")} AS Noted
{_OF_TRACE}
ORDER BY StartNs, Id, DurationNs DESC, Parent LIMIT 1 BY Id LIMIT {{limit:UInt64}}"""
_NOTED_SPANS: Final = _SPANS.replace(
    "SpanAttributes AS Attributes",
    f"mapConcat(SpanAttributes, CAST({notes.sql('otel_traces')}, 'Map(LowCardinality(String), String)')) AS Attributes",
)
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
    parameters = {
        "trace_id": trace_id,
        "start": bounds[0],
        "end": bounds[1],
        "limit": limit,
        "fault": CLOCK_FAULT_DURATION_NS,
    }
    table = store.query_arrow(_SPANS, parameters, role="ui")
    if not table.num_rows:
        return None
    if table["Noted"].to_numpy().any():
        table = store.query_arrow(_NOTED_SPANS, parameters, role="ui")
    known: Resources = {}
    if resources:
        known = {int(row["Hash"]): row["Attributes"] for row in store.query(_RESOURCES, parameters, role="ui")}
    return TraceColumns(table, judge_batch(from_inbox(table), known))

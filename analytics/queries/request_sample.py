"""Rows of `requests` as arrays, thinned evenly where there are too many: what every row-level statistic starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailtrace.analytics.queries.selection import ATTRIBUTES, Metric, Selection
from tailtrace.ingest.store import Store
from tailtrace.stages import REQUEST_STAGES, UNEXPLAINED

MAX_ROWS: Final = 50_000
STAGE_NAMES: Final = (*(stage.name for stage in REQUEST_STAGES), UNEXPLAINED)
_STEMS: Final = (*(stage.column for stage in REQUEST_STAGES), "Unexplained")
# Not named as the columns are: there is a stage `route`, and a filter on the column Route would mean its sum.
_SUMS: Final = ", ".join(f"sum({stem}Ns) AS {stem}Sum" for stem in _STEMS)
_TIME: Final = (
    "End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
    " AND toStartOfMinute(End) >= toStartOfMinute(fromUnixTimestamp64Nano({since:Int64}, 'UTC'))"
    " AND toStartOfMinute(End) <= fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
    " AND Kind = 'request' AND NOT has(Flags, 'clock_fault')"
)
_COUNT: Final = "SELECT sum(Sign) AS n, " + _SUMS + " FROM requests WHERE {time} AND {where}"
_ROWS: Final = (
    "SELECT {columns} FROM requests FINAL WHERE {time} AND {where}"
    " AND ({thin:UInt64} = 1 OR cityHash64(TraceId, 'sample') % {thin:UInt64} = 0)"
    " SETTINGS do_not_merge_across_partitions_select_final = 1"
)
_NUMBERS: Final = {
    "start": "toUnixTimestamp64Nano(Start)",
    "duration": "toInt64(DurationNs)",
    "ttft": "toInt64(ifNull(toInt64(TtftNs), -1))",
    "tpot": "toInt64(ifNull(toInt64(TpotNs), -1))",
    "weight": "toInt64(greatest(SampleWeight, 1))",
    "input_tokens": "ifNull(toInt64(InputTokens), -1)",
    "output_tokens": "ifNull(toInt64(OutputTokens), -1)",
    "cached_tokens": "ifNull(toInt64(CachedTokens), -1)",
    "offered_load": "ifNull(toFloat64(OfferedLoad), nan)",
    "batch_limit": "toInt64(MaxBatch)",
}
# As in rollups (selection.STREAMED): a buffered answer's first token is none that its client saw.
_STREAMED_TTFT: Final = f"if(Streaming = 'false', -1, {_NUMBERS['ttft']})"


class RequestSample:
    """`n` requests match; `rows` of them are here (each stands for n / rows). Times are ns, unknown numbers -1 or NaN.

    `stages` are those that took any time, in vocabulary order, unexplained last.
    """

    def __init__(self, n: int, stages: Sequence[str], table: pa.Table) -> None:
        self.n = n
        self.stages = tuple(stages)
        self._table = table
        self.rows: int = table.num_rows

    def number(self, name: str) -> Any:
        return self._table[name].to_numpy()

    def text(self, attribute: str) -> tuple[Any, list[str]]:
        """Codes by row, and the texts they stand for."""
        column = self._table["a_" + attribute].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        return column.indices.to_numpy(zero_copy_only=False), column.dictionary.cast(pa.string()).to_pylist()

    @property
    def weights(self) -> Any:
        return self.number("weight").astype(np.float64)

    def has(self, metric: Metric) -> Any:
        """Rows for which the metric is known."""
        return self.number(metric) >= 0

    def parts(self, metric: Metric) -> Any:
        """Time by row and stage, in ns: of the whole, of the part before the first token, or of the part after it."""
        if not self.stages:
            return np.zeros((self.rows, 0))
        whole = [] if metric == "ttft" else [self.number(f"s_{name}") for name in self.stages]
        first = [] if metric == "duration" else [self.number(f"f_{name}") for name in self.stages]
        if metric == "duration":
            return np.stack(whole, axis=1).astype(np.float64)
        if metric == "ttft":
            return np.stack(first, axis=1).astype(np.float64)
        return np.stack(whole, axis=1).astype(np.float64) - np.stack(first, axis=1)


def request_sample(
    store: Store, selection: Selection, *, attributes: Sequence[str] = (), limit: int = MAX_ROWS, thin: bool = True
) -> RequestSample:
    """The rows of a selection; more than `limit` are thinned by a hash of the trace id, so that every question about
    the same time sees the same ones. `thin=False` takes the newest `limit` in full instead: a queue needs all arrivals.
    """
    where, parameters = selection.where(), selection.parameters()
    counted = store.query(_COUNT.replace("{time}", _TIME).replace("{where}", where), parameters, role="ui")[0]
    n = int(counted["n"])
    stages = [name for name, stem in zip(STAGE_NAMES, _STEMS, strict=True) if counted[f"{stem}Sum"]] if n else []
    if UNEXPLAINED not in stages:
        stages.append(UNEXPLAINED)
    stem_of = dict(zip(STAGE_NAMES, _STEMS, strict=True))
    numbers = _NUMBERS if "streaming" in selection.filters else {**_NUMBERS, "ttft": _STREAMED_TTFT}
    columns = [f"{sql} AS {name}" for name, sql in numbers.items()]
    columns += [f"toInt64({stem_of[name]}Ns) AS s_{name}" for name in stages]
    columns += [f"toInt64({stem_of[name]}TtftNs) AS f_{name}" for name in stages]
    columns += [f"toString({ATTRIBUTES[name]}) AS a_{name}" for name in attributes]
    sql = _ROWS.replace("{time}", _TIME).replace("{where}", where).replace("{columns}", ", ".join(columns))
    if not thin:
        sql = sql.replace(" SETTINGS", " ORDER BY End DESC LIMIT {limit:UInt64} SETTINGS")
    factor = max(1, -(-n // limit)) if thin else 1
    table = store.query_arrow(sql, {**parameters, "thin": factor, "limit": limit}, role="ui")
    return RequestSample(n, stages, table)

"""What an insert of rows adds to the rollups, summed before it is sent.

A block of rows falls into few buckets of the rollups. Adding it up here takes a pass over numbers; the store would
spread each row into one per metric and hash its texts. The view that sums rows put into `judged` is the slow twin of
this.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace import stages
from tailtrace.analytics.attribution.jit import kernel

METRICS: Final = ("duration", "ttft", "tpot")
STAGE_COLUMNS: Final = (*(stage.column for stage in stages.REQUEST_STAGES), "Unexplained")
DIMENSIONS: Final = ("Service", "Route", "Model", "Version", "Outcome", "Streaming", "IsRoot", "Stratum")
_DEFAULTS: Final = {"IsRoot": pa.scalar(False), "Stratum": pa.scalar(0, pa.uint64())}
_BUCKETS: Final = 1 << 12
_MINUTE_NS: Final = 60_000_000_000
_LOG_STEP: Final = np.log(1.02)


def with_feed(rows: pa.Table) -> pa.Table:
    """The rows (with Sign) as an earlier release put them into `judged`: marked as summed, and on the first what all of
    them add up to (`Feed`).

    Rows of another kind than request, and those with a clock fault, are in no rollup. Stage columns that are not there
    count as 0.
    """
    feed = rollup_feed(rows)
    offsets = np.full(rows.num_rows + 1, feed.num_rows, np.int32)
    offsets[0] = 0
    sums = pa.StructArray.from_arrays([feed[name].combine_chunks() for name in feed.column_names], feed.column_names)
    rows = rows.append_column("Feed", pa.ListArray.from_arrays(pa.array(offsets), sums))
    return rows.append_column("Summed", pa.array(np.ones(rows.num_rows, np.bool_)))


def rollup_feed(rows: pa.Table) -> pa.Table:
    """Rows of `rollup_feed`: the sums of these rows by metric, dimensions, minute of the end and bucket K.

    N is Sign times SampleWeight; a stage's sum is over the metric's interval: all of the request, up to the first
    token, or after it.
    """
    counted = _counted(rows)
    end = _numbers(rows, "End", np.int64)
    names = [n for n in STAGE_COLUMNS if f"{n}Ns" in rows.schema.names or f"{n}TtftNs" in rows.schema.names]
    lengths = np.stack(
        [
            _numbers(rows, "DurationNs", np.int64),
            *(_numbers(rows, f"{name}Ns", np.int64, absent=-1) for name in ("Ttft", "Tpot")),
        ]
    )
    bucket = np.ceil(np.log(np.maximum(lengths, 1)) / _LOG_STEP).astype(np.int64)
    at, metric, k, n, sums = _add_up(
        _groups(rows, end // _MINUTE_NS),
        counted,
        _numbers(rows, "Sign", np.int64) * _numbers(rows, "SampleWeight", np.int64),
        lengths,
        bucket,
        _matrix(rows, [f"{name}Ns" for name in names]),
        _matrix(rows, [f"{name}TtftNs" for name in names]),
    )
    picked = pa.array(at)
    columns: dict[str, Any] = {
        "Metric": pa.DictionaryArray.from_arrays(pa.array(metric.astype(np.int32)), pa.array(METRICS)),
        **{name: _dimension(rows, name, picked) for name in DIMENSIONS},
        "End": pa.array(end[at] // _MINUTE_NS * _MINUTE_NS).cast(pa.timestamp("ns", "UTC")),
        "K": pa.array(k.astype(np.int32)),
        "N": pa.array(n),
        "SumNs": pa.array(sums[:, -1].copy()),
    }
    zeros = pa.array(np.zeros(len(at), np.int64))
    for name in STAGE_COLUMNS:
        columns[f"{name}Ns"] = pa.array(sums[:, names.index(name)].copy()) if name in names else zeros
    return pa.table(columns)


def _dimension(rows: pa.Table, name: str, picked: pa.Array) -> pa.Array:
    """A column that tells buckets apart, of the picked rows; its default where it is not there."""
    if name in rows.schema.names:
        return rows[name].combine_chunks().take(picked)
    return pa.repeat(_DEFAULTS.get(name, pa.scalar("")), len(picked))


def _numbers(rows: pa.Table, name: str, dtype: Any, absent: int = 0) -> Any:
    """A column of numbers; `absent` where it is null or not there."""
    if name not in rows.schema.names:
        return np.full(rows.num_rows, absent, dtype)
    column = rows[name].combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(absent)
    return column.to_numpy(zero_copy_only=False).astype(dtype)


def _matrix(rows: pa.Table, names: list[str]) -> Any:
    out = np.zeros((rows.num_rows, len(names)), np.int64)
    for position, name in enumerate(names):
        if name in rows.schema.names:
            out[:, position] = _numbers(rows, name, np.int64)
    return out


def _counted(rows: pa.Table) -> Any:
    """Which rows are in the rollups."""
    counted = pc.equal(rows["Kind"].combine_chunks(), "request").to_numpy(zero_copy_only=False)
    if "Flags" in rows.schema.names:
        flags = rows["Flags"].combine_chunks()
        faulty = pc.equal(flags.flatten(), "clock_fault").to_numpy(zero_copy_only=False)
        if faulty.any():
            counted = counted.copy()
            counted[pc.list_parent_indices(flags).to_numpy()[faulty]] = False
    return counted.astype(np.bool_)


def _groups(rows: pa.Table, minute: Any) -> Any:
    """A number by row that those of equal dimensions and minute share."""
    codes = _encoded(pa.array(minute))[0]
    for name in DIMENSIONS:
        if name not in rows.schema.names:
            continue
        own, kinds = _encoded(rows[name].combine_chunks())
        if kinds == 1:
            continue
        codes = _encoded(pa.array(codes * kinds + own))[0]
    return codes


def _encoded(column: pa.Array) -> tuple[Any, int]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(column.dictionary)


@kernel
def _add_up(group: Any, counted: Any, weight: Any, lengths: Any, bucket: Any, total: Any, first: Any) -> Any:
    """Sums by (group, metric, bucket), in order of first appearance: the first row of each, metric, bucket, n, and the
    sums of stages and, in the last column, of the length. A length below 0 is unknown."""
    m, width = total.shape
    size = 64
    while size < 4 * m:
        size *= 2
    slots = np.full(size, -1, np.int64)
    keys = np.empty(3 * m, np.int64)
    at = np.empty(3 * m, np.int64)
    n = np.zeros(3 * m, np.int64)
    sums = np.zeros((1024, width + 1), np.int64)
    found = 0
    for i in range(m):
        if not counted[i]:
            continue
        w = weight[i]
        for metric in range(3):
            length = lengths[metric, i]
            if length < 0:
                continue
            key = (group[i] * 3 + metric) * _BUCKETS + bucket[metric, i]
            place = (key * -7046029254386353131 >> 20) & (size - 1)
            while slots[place] >= 0 and keys[slots[place]] != key:
                place = (place + 1) & (size - 1)
            cell = slots[place]
            if cell < 0:
                cell = found
                slots[place] = cell
                keys[cell] = key
                at[cell] = i
                found += 1
                if found > len(sums):
                    bigger = np.zeros((2 * len(sums), width + 1), np.int64)
                    for row in range(len(sums)):  # a slice would bring its errors' texts along: a second of compiling
                        for s in range(width + 1):
                            bigger[row, s] = sums[row, s]
                    sums = bigger
            n[cell] += w
            sums[cell, width] += w * length
            if metric == 0:
                for s in range(width):
                    sums[cell, s] += w * total[i, s]
            elif metric == 1:
                for s in range(width):
                    sums[cell, s] += w * first[i, s]
            else:
                for s in range(width):
                    sums[cell, s] += w * (total[i, s] - first[i, s])
    keys = keys[:found]
    return at[:found], keys // _BUCKETS % 3, keys % _BUCKETS, n[:found], sums[:found]

"""Re-opened requests: the rows that stand, and the insert that takes them back and puts the new ones in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace.analytics.jobs.inbox import trace_bounds
from tailtrace.ingest.store import Store

NO_ROWS: Final = pa.table({})
_CHUNK: Final = 5_000
_UNCHANGED_BESIDE: Final = (
    "Revision",
    "Round",
    "Sign",
    "ReceivedAt",
    "OfferedLoad",
    "Stratum",
    "Path",
    "Flags",
    "DerivedStages",
    "Shard",
)

# Rows written before the round whose copies do not cancel out. A row and its take-back differ in Sign and Round alone.
_STORED: Final = """
SELECT * EXCEPT (Sign, Round, Shard, Summed) FROM requests
WHERE toStartOfMinute(End) >= toStartOfMinute(fromUnixTimestamp64Nano({start:Int64}, 'UTC'))
  AND toStartOfMinute(End) <= fromUnixTimestamp64Nano({end:Int64}, 'UTC')
  AND TraceId IN {traces:Array(String)} AND Round < {round:UInt64} AND Sign = 1
  AND (TraceId, SpanId, Revision) IN (
    SELECT TraceId, SpanId, Revision FROM requests
    WHERE toStartOfMinute(End) >= toStartOfMinute(fromUnixTimestamp64Nano({start:Int64}, 'UTC'))
      AND toStartOfMinute(End) <= fromUnixTimestamp64Nano({end:Int64}, 'UTC')
      AND TraceId IN {traces:Array(String)} AND Round < {round:UInt64}
    GROUP BY TraceId, SpanId, Revision HAVING sum(Sign) > 0)
LIMIT 1 BY TraceId, SpanId
"""


def stored_rows(store: Store, hexes: Sequence[str], before_round: int) -> pa.Table:
    """The standing rows of these traces, as written by rounds before `before_round`."""
    tables = []
    for start in range(0, len(hexes), _CHUNK):
        traces = list(hexes[start : start + _CHUNK])
        bounds = trace_bounds(store, traces)
        if bounds is None:
            continue
        parameters = {"start": bounds[0], "end": bounds[1] + 60_000_000_000, "traces": traces, "round": before_round}
        table = store.query_arrow(_STORED, parameters, role="jobs")
        if table.num_rows:
            tables.append(table)
    return pa.concat_tables(tables) if tables else NO_ROWS


def rewritten(old: pa.Table, new: pa.Table, number: int) -> pa.Table:
    """What round `number` writes: old rows taken back, new ones put in. A row that would come back the same stays."""
    if old.num_rows:
        old, new = _changed(old, new)
    parts = []
    if old.num_rows:
        parts.append(_signed(old, -1, number))
    if new.num_rows:
        stamped = new.append_column("Revision", pa.array(np.full(new.num_rows, number, np.uint64)))
        parts.append(_signed(stamped, 1, number))
    if not parts:
        return NO_ROWS
    if len(parts) == 1:
        return parts[0]
    names = parts[1].column_names
    return pa.concat_tables([_plain(part.select(names)) for part in parts], promote_options="permissive")


def _signed(table: pa.Table, sign: int, number: int) -> pa.Table:
    count = table.num_rows
    return table.append_column("Sign", pa.array(np.full(count, sign, np.int8))).append_column(
        "Round", pa.array(np.full(count, number, np.uint64))
    )


def _plain(table: pa.Table) -> pa.Table:
    """The table in types that a stored and a new one share."""
    out = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif pa.types.is_boolean(kind) or name in _BOOLS:
            column = column.cast(pa.bool_())
        elif pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("ms" if name == "ReceivedAt" else "ns", "UTC"))
        elif name == "Path":
            column = column.cast(_PATH)
        elif pa.types.is_list(kind):
            column = column.cast(pa.list_(pa.string()))
        out[name] = column
    return pa.table(out)


_BOOLS: Final = ("IsRoot", "Simulated")
_PATH: Final = pa.list_(
    pa.struct(
        [
            ("stage", pa.string()),
            ("service", pa.string()),
            ("name", pa.string()),
            ("edge", pa.string()),
            ("ns", pa.uint64()),
        ]
    )
)


def _changed(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both without the rows that are in both."""
    if not new.num_rows:
        return old, new
    mine, theirs = _fingerprints(old, new.column_names), _fingerprints(new, new.column_names)
    return (
        old.filter(pa.array([print_ not in set_ for set_ in (set(theirs),) for print_ in mine])),
        new.filter(pa.array([print_ not in set_ for set_ in (set(mine),) for print_ in theirs])),
    )


def _fingerprints(table: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    plain = _plain(table.select([name for name in names if name not in ("Path",)]))
    flags = pc.binary_join(plain["Flags"], ",").to_pylist()
    derived = pc.binary_join(plain["DerivedStages"], ",").to_pylist()
    scalars = [name for name in plain.column_names if name not in _UNCHANGED_BESIDE]
    columns = [
        plain[name].cast(pa.int64()).to_pylist() if pa.types.is_timestamp(plain[name].type) else plain[name].to_pylist()
        for name in sorted(scalars)
    ]
    return list(zip(flags, derived, *columns, strict=True))

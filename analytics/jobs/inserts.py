"""The inserts of a round: its rows, then what they add to the rollups.

Each is stored once, by its token, so a round that died between the two is mended when it is repeated.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace import stages
from tailtrace.analytics.jobs.progress import JOB, Claim
from tailtrace.analytics.jobs.rollup_feed import rollup_feed, with_feed
from tailtrace.ingest.store import Store

INSERT_ROWS: Final = 50_000
INSERT_DAYS: Final = 90
_WRITTEN: Final = """
SELECT count() AS n FROM requests WHERE Round = {round:UInt64} AND Shard IN {shards:Array(UInt8)} AND NOT Summed
"""
_STAGE_COLUMNS: Final = frozenset(
    f"{stem}{suffix}"
    for stem in (*(stage.column for stage in stages.STAGES), "Unexplained")
    for suffix in ("Ns", "TtftNs")
)


def write(store: Store, rows: pa.Table, claim: Claim, name: str) -> None:
    """Inserts the rows of a round of the shards of this name, and their sums."""
    if not (claim.apart or claim.summed) and _written_unsummed(store, claim, name):
        return
    for part, some in enumerate(_parts(rows)):
        token = f"{JOB}/{name}/{claim.round}/{part}"
        some = _sparse(some)
        if claim.summed:
            store.insert_arrow("judged", with_feed(some), token=token)
            continue
        summed = pa.array(np.ones(some.num_rows, np.bool_))
        store.insert_arrow("requests", some.append_column("Summed", summed), token=token)
        feed = rollup_feed(some)
        if feed.num_rows:
            store.insert_arrow("rollup_feed", feed, token=token)


def _written_unsummed(store: Store, claim: Claim, name: str) -> bool:
    """Whether the release before the sums has written this round: a view summed each of its rows then."""
    parameters = {"round": claim.round, "shards": [int(shard) for shard in name.split("-")]}
    return bool(store.query(_WRITTEN, parameters, role="jobs")[0]["n"])


def _sparse(rows: pa.Table) -> pa.Table:
    """The rows without the columns that hold nothing but their default: null, 0 ns in a stage, or no text."""
    empty = [
        name
        for name in rows.schema.names
        if rows[name].null_count == rows.num_rows
        or (name in _STAGE_COLUMNS and pc.max(rows[name]).as_py() == 0)
        or _textless(rows[name])
    ]
    return rows.drop_columns(empty)


_NO_TEXT: Final = pa.array([""])


def _textless(column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type):
        return all(chunk.dictionary.equals(_NO_TEXT) for chunk in column.chunks)
    return pa.types.is_string(column.type) and not pc.any(pc.not_equal(column, "")).as_py()


def _parts(rows: pa.Table) -> list[pa.Table]:
    """The rows in as many inserts as memory and the engine's limit of 100 partitions each ask for, one as a rule.

    Several are cut from the rows in order, so that a round that is repeated cuts them alike. A row and its take-back
    may then come a moment apart, but both come, or neither is passed by the watermark.
    """
    if rows.num_rows == 0:
        return []
    day = rows["End"].cast(pa.int64()).combine_chunks().to_numpy() // 86_400_000_000_000
    few_days = day.max() - day.min() < INSERT_DAYS or len(np.unique(day)) <= INSERT_DAYS
    if rows.num_rows <= INSERT_ROWS and few_days:
        return [rows]
    order = rows.select(["TraceId", "SpanId", "Sign"]).append_column("Day", pa.array(day))
    keys = [("Day", "ascending"), ("TraceId", "ascending"), ("SpanId", "ascending"), ("Sign", "ascending")]
    at = pc.sort_indices(order, sort_keys=keys)
    rows, day = rows.take(at), day[at.to_numpy()]
    number = np.unique(day, return_inverse=True)[1] // INSERT_DAYS
    starts = [0]
    for k in range(1, len(day)):
        if k - starts[-1] >= INSERT_ROWS or number[k] != number[starts[-1]]:
            starts.append(k)
    return [rows.slice(a, b - a) for a, b in zip(starts, [*starts[1:], len(day)], strict=True)]

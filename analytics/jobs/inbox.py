"""Reading new spans: from the inbox in order of arrival, or whole traces that were seen before from `otel_traces`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace.analytics.engines import notes
from tailtrace.analytics.jobs.progress import SHARDS
from tailtrace.ingest.store import Store

# An insert shows its rows only when it is done. None takes longer than this: later blocks hold no older receive times.
IN_FLIGHT_MS: Final = 120_000
MAX_TRACES_A_READ: Final = 5_000
MAX_KEPT_BYTES: Final = 64 << 20
ARROW: Final[Mapping[str, Any]] = {
    "output_format_arrow_low_cardinality_as_dictionary": 1,
    # What comes in few large pieces is put together in less time.
    "max_block_size": 65_409,
    "preferred_block_size_bytes": 0,
}

# A part's name ends in its first block, its last and its level. By it, parts of other blocks are left out before
# anything of them is read: together they hold many times the spans of a round. As a hint it is asked of a part; as a
# condition it would be asked of each row again, for a fourth of what reading takes.
_NEW: Final = """
Received >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')
  AND _block_number > {low:UInt64} AND _block_number <= {to:UInt64}
  AND indexHint(toUInt64OrDefault(splitByChar('_', _part)[3], toUInt64(18446744073709551615)) > {low:UInt64})
  AND indexHint(toUInt64OrDefault(splitByChar('_', _part)[2], toUInt64(0)) <= {to:UInt64})
"""
_OF_SHARDS: Final = "AND Shard IN {shards:Array(UInt8)}"

_BLOCKS: Final = f"""
SELECT _block_number AS block, count() AS n, toUnixTimestamp64Milli(min(Received)) AS first
FROM span_inbox WHERE {_NEW} %s GROUP BY block ORDER BY block
"""

_COLUMNS: Final = """TraceId, SpanId, ParentSpanId, StartNs, DurationNs, ClockFault, Kind, Service, Name, Scope, Status,
  Stage, StageName, Blocking, Resource, HasAttributes, Attributes"""

SPANS: Final = f"""
SELECT {_COLUMNS}, toUnixTimestamp64Milli(Received) AS ReceivedMs, toInt64(_block_number) AS Block
FROM span_inbox WHERE {_NEW} %s
"""

_BOUNDS: Final = """
SELECT TraceId, toUnixTimestamp64Nano(min(Start)) AS start, toUnixTimestamp64Nano(max(End)) AS end
FROM otel_traces_trace_id_ts WHERE TraceId IN {traces:Array(String)} GROUP BY TraceId
"""

_TRACES: Final = f"""
SELECT toFixedString(substring(unhex(t.TraceId), 1, 16), 16) AS TraceId,
  reinterpretAsUInt64(reverse(unhex(t.SpanId))) AS SpanId,
  reinterpretAsUInt64(reverse(unhex(t.ParentSpanId))) AS ParentSpanId,
  toUnixTimestamp64Nano(t.Timestamp) AS StartNs, t.Duration AS DurationNs, t.ClockFault AS ClockFault,
  t.SpanKind AS Kind, t.ServiceName AS Service, t.SpanName AS Name, toLowCardinality(t.ScopeName) AS Scope,
  t.StatusCode AS Status, t.Stage AS Stage,
  toLowCardinality(if(t.Stage = 'custom', t.SpanAttributes['tailtrace.stage_name'], '')) AS StageName,
  NOT (t.Stage != '' AND t.SpanAttributes['tailtrace.blocking'] = 'false') AS Blocking,
  cityHash64(mapKeys(t.ResourceAttributes), mapValues(t.ResourceAttributes)) AS Resource,
  true AS HasAttributes,
  if(empty({notes.sql("t")} AS Notes), SpanAttributes,
    mapConcat(SpanAttributes, CAST(Notes, 'Map(LowCardinality(String), String)'))) AS Attributes,
  toUnixTimestamp64Milli(t.ReceivedAt) AS ReceivedMs, toInt64(0) AS Block
FROM otel_traces AS t
WHERE t.TraceId IN {{traces:Array(String)}}
  AND t.Timestamp >= fromUnixTimestamp64Nano({{start:Int64}}, 'UTC')
  AND t.Timestamp <= fromUnixTimestamp64Nano({{end:Int64}}, 'UTC')
  AND toStartOfMinute(t.Timestamp) >= toStartOfMinute(fromUnixTimestamp64Nano({{start:Int64}}, 'UTC'))
  AND toStartOfMinute(t.Timestamp) <= toStartOfMinute(fromUnixTimestamp64Nano({{end:Int64}}, 'UTC'))
ORDER BY t.TraceId, t.Timestamp
LIMIT {{limit:UInt32}} BY t.TraceId
"""

_RESOURCES: Final = (
    "SELECT Hash, any(Attributes) AS Attributes FROM resources WHERE Hash IN {hashes:Array(UInt64)} GROUP BY Hash"
)


@dataclass(frozen=True, slots=True)
class NewBlocks:
    """The blocks of the inbox that a round takes: up to `to`, `spans` in all; `next_ms` is the first left out."""

    to: int
    spans: int
    next_ms: int | None


class WaitingBlocks:
    """The blocks of some shards that no round has taken yet. Each is counted once: a block that is there stays as it
    is, and behind a backlog counting anew each round would read all of it."""

    def __init__(self) -> None:
        self._counted: list[tuple[int, int, int]] = []

    def take(
        self, store: Store, shards: Sequence[int], since_ms: int, cursor: int, last: int, limit: int
    ) -> NewBlocks | None:
        """Blocks in (cursor, last], at least one and then as many as hold `limit` spans; None when there is none."""
        blocks = [block for block in self._counted if block[0] > cursor]
        counted = blocks[-1][0] if blocks else cursor
        rows = store.query(*of_shards(_BLOCKS, shards, since_ms, counted, last), role="jobs")
        blocks += [(int(row["block"]), int(row["n"]), int(row["first"])) for row in rows]
        self._counted = blocks
        if not blocks:
            return None
        taken, spans = 0, 0
        for _, count, _ in blocks:
            if taken and spans + count > limit:
                break
            spans += count
            taken += 1
        left = blocks[taken:]
        return NewBlocks(blocks[taken - 1][0], spans, min(first for _, _, first in left) if left else None)


def read_inbox(store: Store, shards: Sequence[int], since_ms: int, low: int, to: int) -> pa.Table:
    """The spans of blocks in (low, to]."""
    return store.query_arrow(*of_shards(SPANS, shards, since_ms, low, to), role="jobs", settings=ARROW)


def after_block(table: pa.Table, block: int) -> pa.Table | None:
    """A copy of the spans of later blocks; None where they are too many to be kept in memory."""
    if table.num_rows == 0:
        return table
    later = table.filter(pc.greater(table["Block"], block))
    if later.nbytes > MAX_KEPT_BYTES:
        return None
    # Chunks that have become empty would gather.
    return pa.Table.from_batches([batch for batch in later.to_batches() if batch.num_rows], later.schema)


def of_shards(sql: str, shards: Sequence[int], since_ms: int, low: int, to: int) -> tuple[str, dict[str, Any]]:
    """The statement for these shards, and its parameters; who has all of them does not read whose a span is."""
    parameters: dict[str, Any] = {"since": since_ms, "low": low, "to": to}
    if len(shards) == SHARDS:
        return sql % "", parameters
    return sql % _OF_SHARDS, {**parameters, "shards": list(shards)}


def trace_bounds(store: Store, traces: Sequence[str]) -> tuple[int, int] | None:
    """The earliest start and the latest end (ns) of these traces."""
    rows = store.query(_BOUNDS, {"traces": list(traces)}, role="jobs")
    if not rows:
        return None
    return min(int(row["start"]) for row in rows), max(int(row["end"]) for row in rows)


def read_traces(store: Store, traces: Sequence[str], bounds: tuple[int, int], limit: int) -> pa.Table:
    """All spans of these traces with all their attributes, in the form of the inbox; at most `limit` of each."""
    parameters = {"traces": list(traces), "start": bounds[0], "end": bounds[1], "limit": limit}
    return store.query_arrow(_TRACES, parameters, role="jobs", settings=ARROW)


class ResourceCache:
    """Resource attributes by hash; asked of the store once."""

    def __init__(self, limit: int = 20_000) -> None:
        self._known: dict[int, Mapping[str, str]] = {}
        self._limit = limit

    def get(self, store: Store, hashes: Any) -> Mapping[int, Mapping[str, str]]:
        """At least those of `hashes` that are stored."""
        wanted = [int(h) for h in np.unique(hashes) if int(h) not in self._known]
        if len(self._known) + len(wanted) > self._limit:
            self._known.clear()
            wanted = [int(h) for h in np.unique(hashes)]
        for start in range(0, len(wanted), 1000):
            for row in store.query(_RESOURCES, {"hashes": wanted[start : start + 1000]}, role="jobs"):
                self._known[int(row["Hash"])] = row["Attributes"]
        return self._known

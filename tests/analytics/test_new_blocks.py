"""Reading the inbox by blocks: each span once, whatever parts its blocks have been merged into."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailtrace.analytics.jobs import inbox
from tailtrace.analytics.jobs.progress import SHARDS
from tailtrace.analytics.jobs.visible import EVERYTHING
from tailtrace.ingest.store import Store

RECEIVED_MS = 1_750_000_000_000
BLOCKS, SPANS = 4, 64
ALL = list(range(SHARDS))


def fill(store: Store, first: int = 1) -> int:
    """Block b holds the span ids 100 b to 100 b + 63, each shard four of them; gives the number before the first."""
    for block in range(first, first + BLOCKS):
        store.insert_arrow(
            "span_inbox",
            pa.table(
                {
                    "Received": pa.array([RECEIVED_MS + block] * SPANS, pa.timestamp("ms", "UTC")),
                    "SpanId": pa.array([100 * block + k for k in range(SPANS)], pa.uint64()),
                    "Shard": pa.array([k % SHARDS for k in range(SPANS)], pa.uint8()),
                }
            ),
        )
    return int(store.query("SELECT min(_block_number) AS n FROM span_inbox")[0]["n"]) - 1


@pytest.mark.parametrize("merged", [False, True])
def test_blocks_are_read_alike_before_and_after_a_merge(store: Store, merged: bool) -> None:
    before = fill(store)
    if merged:
        store.command("OPTIMIZE TABLE span_inbox FINAL")
        store.command("INSERT INTO span_inbox (Received, SpanId) SELECT now64(3), 999")
    for low in range(BLOCKS):
        for to in range(low + 1, BLOCKS + 1):
            for shards in (ALL, [3], [0, 15]):
                found = inbox.read_inbox(store, shards, RECEIVED_MS, before + low, before + to)
                wanted = [100 * b + k for b in range(low + 1, to + 1) for k in range(SPANS) if k % SHARDS in shards]
                assert sorted(found["SpanId"].to_pylist()) == wanted
    taken = inbox.WaitingBlocks().take(store, [5], RECEIVED_MS, before + 1, EVERYTHING, 8)
    assert taken == inbox.NewBlocks(to=before + 3, spans=8, next_ms=RECEIVED_MS + 4)
    assert inbox.WaitingBlocks().take(store, ALL, RECEIVED_MS, before + BLOCKS + 1, EVERYTHING, 8) is None


def test_blocks_that_wait_are_counted_once_and_later_ones_are_found(store: Store) -> None:
    before = fill(store)
    waiting = inbox.WaitingBlocks()
    first = waiting.take(store, ALL, RECEIVED_MS, before, EVERYTHING, SPANS)
    assert first == inbox.NewBlocks(to=before + 1, spans=SPANS, next_ms=RECEIVED_MS + 2)
    fill(store, BLOCKS + 1)
    taken = [waiting.take(store, ALL, RECEIVED_MS, before + k, EVERYTHING, 2 * SPANS) for k in (1, 3)]
    assert taken == [
        inbox.NewBlocks(to=before + 3, spans=2 * SPANS, next_ms=RECEIVED_MS + 4),
        inbox.NewBlocks(to=before + 5, spans=2 * SPANS, next_ms=RECEIVED_MS + 6),
    ]
    # Another worker was faster: what it took is no longer offered.
    rest = waiting.take(store, ALL, RECEIVED_MS, before + 2 * BLOCKS - 1, EVERYTHING, SPANS)
    assert rest == inbox.NewBlocks(to=before + 2 * BLOCKS, spans=SPANS, next_ms=None)
    assert waiting.take(store, ALL, RECEIVED_MS, before + 2 * BLOCKS, EVERYTHING, SPANS) is None


def test_parts_of_other_blocks_are_not_read(store: Store) -> None:
    before = fill(store)
    sql, parameters = inbox.of_shards(inbox.SPANS, ALL, RECEIVED_MS, before + 1, before + 2)
    plan = [row["explain"] for row in store.query(f"EXPLAIN indexes = 1 {sql}", parameters)]
    assert any("Parts: 1 |" in line for line in plan), plan

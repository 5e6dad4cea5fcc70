"""Drops the part of the inbox that every shard has judged: it is only a queue."""

from __future__ import annotations

import json
from typing import Final

from tailtrace.analytics.jobs.progress import SHARDS, states
from tailtrace.ingest.store import Store

# Kept behind the watermark, besides the newest partition: it carries the block numbers on.
KEPT_MS: Final = 60_000
_PARTITIONS: Final = """
SELECT partition_id AS id, sum(rows) AS n FROM system.parts
WHERE database = currentDatabase() AND table = 'span_inbox' AND active GROUP BY partition_id ORDER BY id
"""
_NEWEST: Final = (
    "SELECT toUnixTimestamp64Milli(max(Received)) AS newest FROM span_inbox WHERE _partition_id = {id:String}"
)


def trim_inbox(store: Store) -> int:
    """Drops partitions whose newest span lies well behind every shard's watermark; returns how many."""
    rows = states(store)
    if len(rows) < SHARDS:
        return 0
    behind = min(json.loads(row["note"])["since_ms"] for row in rows) - KEPT_MS
    dropped = 0
    for partition in store.query(_PARTITIONS, role="jobs")[:-1]:
        name = str(partition["id"])
        if int(store.query(_NEWEST, {"id": name}, role="jobs")[0]["newest"]) >= behind or not name.isalnum():
            break
        store.command(f"ALTER TABLE span_inbox DROP PARTITION ID '{name}'")
        dropped += 1
    return dropped

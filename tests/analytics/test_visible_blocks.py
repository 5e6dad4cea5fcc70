"""The jobs' cursor over the inbox skips nothing, with several receivers on one server."""

from __future__ import annotations

import threading
from typing import Any

from tailtrace.analytics.jobs.visible import EVERYTHING, HELD_S, Visible
from tailtrace.ingest.store import Role, Store

INSERT = (
    "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ReceivedAt) SELECT now64(9), lower(hex(cityHash64(number))), "
    "lower(hex(number)), now64(3) - {age:UInt32} FROM numbers({rows:UInt32})"
)


def test_blocks_appear_in_the_order_of_their_numbers(store: Store) -> None:
    """What the cursor rests on: big and small inserts at once, of new and of older receive times."""
    roles: list[Role] = ["insert", "jobs", "ui"]

    def insert(lane: int) -> None:
        for k in range(12):
            rows = (1, 50, 20_000)[(lane + k) % 3]
            store.command(INSERT, {"age": 400 * (k % 2), "rows": rows}, role=roles[lane])

    threads = [threading.Thread(target=insert, args=(lane,)) for lane in range(3)]
    for thread in threads:
        thread.start()
    seen: set[int] = set()
    cursor = 0
    while True:
        last = not any(thread.is_alive() for thread in threads)
        found = {int(row["n"]) for row in store.query("SELECT DISTINCT _block_number AS n FROM span_inbox", role="ui")}
        assert all(number > cursor for number in found - seen)
        seen |= found
        cursor = max(seen, default=0)
        if last:
            break
    assert len(seen) == 36


class Replica:
    """Answers as a replicated inbox whose newest block is told."""

    def __init__(self) -> None:
        self.newest = 0

    def query(self, sql: str, parameters: object = None, **_: Any) -> list[dict[str, Any]]:
        return [{"engine": "ReplicatedMergeTree"}] if "system.tables" in sql else [{"n": self.newest}]


def test_a_replicated_block_counts_once_it_has_been_seen_for_a_while() -> None:
    now = 0.0
    replica = Replica()
    visible = Visible(lambda: now)

    def up_to() -> int:
        return visible.up_to(replica, 0)  # type: ignore[arg-type]

    replica.newest = 7  # 6 is still on its way
    assert up_to() == 0
    now, replica.newest = 4.0, 9
    assert up_to() == 0
    now = HELD_S
    assert up_to() == 7
    now = HELD_S + 4.0
    assert up_to() == 9
    now, replica.newest = 99.0, 9
    assert up_to() == 9


def test_a_plain_inbox_is_taken_at_once(store: Store) -> None:
    assert Visible().up_to(store, 0) == EVERYTHING

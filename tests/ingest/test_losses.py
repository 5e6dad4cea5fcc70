"""What was rejected is written once, whatever the store does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tailtrace.errors import StoreError
from tailtrace.ingest.losses import RejectionLog
from tailtrace.ingest.receiver import Counters
from tailtrace.ingest.store import Store

READ = (
    "SELECT Signal, Kind, Reason, toInt64(sum(Count)) AS n, toUnixTimestamp(min(Time)) AS at FROM losses"
    " GROUP BY Signal, Kind, Reason ORDER BY Signal, Reason"
)


class Unsure:
    """A store that took the rows and said that it had not, as when a connection breaks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failing = True

    def insert_arrow(self, table: str, data: pa.Table, **rest: Any) -> None:
        self.store.insert_arrow(table, data, **rest)
        if self.failing:
            raise StoreError("the connection broke")


def test_only_what_is_new_is_written(store: Store) -> None:
    counters = Counters()
    written = RejectionLog(store, counters.snapshot, clock=lambda: 1_790_000_130.0)
    written.write()
    assert store.query(READ) == []
    counters.answered("traces", accepted=5, rejected={"bad_span_id": 2, "start_in_future": 1})
    written.write()
    counters.answered("traces", rejected={"bad_span_id": 3})
    counters.answered("logs", rejected={"two_values": 1})
    written.write()
    written.write()
    found = [(row["Signal"], row["Kind"], row["Reason"], row["n"], row["at"]) for row in store.query(READ)]
    assert found == [
        ("logs", "rejected", "two_values", 1, 1_790_000_100),
        ("traces", "rejected", "bad_span_id", 5, 1_790_000_100),
        ("traces", "rejected", "start_in_future", 1, 1_790_000_100),
    ]


def test_what_may_be_stored_already_is_sent_again_under_its_token(store: Store) -> None:
    counters = Counters()
    unsure = Unsure(store)
    written = RejectionLog(unsure, counters.snapshot)  # type: ignore[arg-type]
    counters.answered("traces", rejected={"bad_span_id": 2})
    with pytest.raises(StoreError):
        written.write()
    counters.answered("traces", rejected={"bad_span_id": 4})
    unsure.failing = False
    written.write()
    written.write()
    assert [row["n"] for row in store.query(READ)] == [6]


def test_the_rest_is_written_at_the_end(store: Store) -> None:
    counters = Counters()
    written = RejectionLog(store, counters.snapshot)
    assert written.start() == written.stop
    counters.answered("metrics", rejected={"two_values": 7})
    written.stop(timeout_s=30)
    assert [row["n"] for row in store.query(READ)] == [7]

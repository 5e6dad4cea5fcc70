"""What the job adds up itself against the view that sums rows one by one: its slow twin."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailtrace.analytics.jobs import inserts
from tailtrace.analytics.jobs.progress import Claim
from tailtrace.analytics.jobs.rollup_feed import rollup_feed
from tailtrace.ingest.store import Store
from tests.seeding import SECOND, T0, request, requests_table

MINUTE = 60 * SECOND
TABLES = ("rollup_1m", "rollup_1h", "rollup_1d", "strata_5m", "strata_1d")


def varied(count: int, seed: int = 3) -> list[dict[str, Any]]:
    """Rows of every kind that a rollup tells apart, over three hours."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        length = int(10 ** draw.uniform(0, 11))
        first = draw.choice([None, 0, 1, length // 3, length])
        parts = {"QueueNs": length // 5, "DecodeNs": length // 7}
        rows.append(
            request(
                number,
                duration_ns=length,
                end_ns=T0 + draw.randrange(180) * MINUTE + draw.randrange(MINUTE),
                Service=draw.choice(["api", "engine"]),
                Route=draw.choice(["", "/v1"]),
                Model=draw.choice(["m", "é中"]),
                Version=draw.choice(["1", "2"]),
                Outcome=draw.choice(["ok", "error"]),
                Streaming=draw.choice(["true", ""]),
                IsRoot=draw.random() < 0.5,
                Stratum=draw.choice([1, (1 << 64) - 1]),
                Kind=draw.choice(["request", "request", "request", "job"]),
                Flags=draw.choice([[], ["skewed"], ["clock_fault"], ["skewed", "clock_fault"]]),
                SampleWeight=draw.choice([1, 7]),
                Sign=draw.choice([1, 1, -1]),
                TtftNs=first,
                TpotNs=draw.choice([None, 0, length // 9]),
                QueueTtftNs=length // 6,
                UnexplainedTtftNs=length // 8,
                **parts,
            )
        )
    return rows


def contents(store: Store, table: str) -> list[dict[str, Any]]:
    columns = store.query(
        "SELECT name, type LIKE 'Simple%' AS summed FROM system.columns "
        "WHERE database = currentDatabase() AND table = {table:String} ORDER BY position",
        {"table": table},
    )
    keys = ", ".join(str(column["name"]) for column in columns if not column["summed"])
    sums = ", ".join(f"sum({column['name']}) AS {column['name']}" for column in columns if column["summed"])
    return store.query(f"SELECT {keys}, {sums} FROM {table} GROUP BY {keys} ORDER BY {keys}")


NEW = Claim(7, 0, 0, apart=True)
OF_EARLIER_RELEASE = Claim(7, 0, 0, summed=True)


def empty(store: Store) -> None:
    for table in ("requests", *TABLES):
        store.command(f"TRUNCATE TABLE {table}")


@pytest.mark.parametrize("claim", [NEW, OF_EARLIER_RELEASE])
def test_every_rollup_is_that_of_the_view(store: Store, claim: Claim) -> None:
    rows = requests_table(store, varied(2_000))
    store.insert_arrow("judged", rows, token="one")
    expected = {table: contents(store, table) for table in TABLES}
    stored = store.query("SELECT * EXCEPT (JudgedAt, Summed) FROM requests ORDER BY TraceId")
    empty(store)
    for _ in range(2):
        inserts.write(store, rows, claim, "0-1")
    for table in TABLES:
        assert len(expected[table]) > 50
        assert contents(store, table) == expected[table], table
    assert store.query("SELECT * EXCEPT (JudgedAt, Summed) FROM requests ORDER BY TraceId") == stored
    assert store.query("SELECT DISTINCT Summed FROM requests") == [{"Summed": True}]


def test_what_a_killed_round_left_out_its_repetition_puts_in(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = requests_table(store, varied(300))
    inserts.write(store, rows, NEW, "0")
    expected = {table: contents(store, table) for table in TABLES}
    empty(store)
    insert = store.insert_arrow

    def dies(table: str, data: pa.Table, **more: Any) -> None:
        if table == "rollup_feed":
            raise KeyboardInterrupt
        insert(table, data, **more)

    with monkeypatch.context() as patch:
        patch.setattr(store, "insert_arrow", dies)
        with pytest.raises(KeyboardInterrupt):
            inserts.write(store, rows, NEW, "1")
    assert store.query("SELECT count() AS n FROM requests")[0]["n"] == 300
    assert contents(store, "rollup_1m") == []
    for _ in range(2):
        inserts.write(store, rows, NEW, "1")
    assert store.query("SELECT count() AS n FROM requests")[0]["n"] == 300
    for table in TABLES:
        assert contents(store, table) == expected[table], table


def test_a_round_that_wrote_rows_before_there_were_sums_is_not_written_again(store: Store) -> None:
    rows = requests_table(store, [{**row, "Revision": 7, "Round": 7} for row in varied(50)])
    store.insert_arrow("judged", rows, token="by the view of then")
    before = {table: contents(store, table) for table in ("requests", *TABLES)}
    shards = "-".join(str(shard) for shard in range(16))
    inserts.write(store, rows, Claim(7, 0, 0), shards)
    assert {table: contents(store, table) for table in ("requests", *TABLES)} == before
    inserts.write(store, rows, Claim(8, 0, 0), shards)
    assert store.query("SELECT count() AS n FROM requests")[0]["n"] == 100


def test_a_bucket_is_one_row_and_takes_back_what_it_got() -> None:
    count = 500
    rows = pa.table(
        {
            "Kind": pa.array(["request"] * count),
            "End": pa.array(np.full(count, T0), pa.timestamp("ns", "UTC")),
            "Service": pa.array(["api"] * count),
            "DurationNs": pa.array(np.full(count, 1_000_000, np.uint64)),
            "QueueNs": pa.array(np.full(count, 10, np.uint64)),
            "SampleWeight": pa.array(np.ones(count, np.uint32)),
            "Sign": pa.array(np.ones(count, np.int8)),
        }
    )
    [bucket] = rollup_feed(rows).to_pylist()
    assert (bucket["Metric"], bucket["Service"], bucket["N"]) == ("duration", "api", count)
    assert (bucket["SumNs"], bucket["QueueNs"]) == (count * 1_000_000, count * 10)
    taken_back = rows.set_column(rows.column_names.index("Sign"), "Sign", pa.array(np.full(count, -1, np.int8)))
    [nothing] = rollup_feed(pa.concat_tables([rows, taken_back])).to_pylist()
    assert (nothing["N"], nothing["SumNs"], nothing["QueueNs"]) == (0, 0, 0)


def test_rows_that_count_nowhere_feed_nothing() -> None:
    rows = pa.table(
        {
            "Kind": pa.array(["job", "startup"]),
            "End": pa.array([T0, T0], pa.timestamp("ns", "UTC")),
            "DurationNs": pa.array([1, 2], pa.uint64()),
            "SampleWeight": pa.array([1, 1], pa.uint32()),
            "Sign": pa.array([1, 1], pa.int8()),
        }
    )
    assert rollup_feed(rows).num_rows == 0

"""What verdicts read of `requests`, against the rows summed one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from seeding import SECOND, insert_requests, request

from tailtrace.analytics.verdicts import read
from tailtrace.ingest.store import Store

START = 1_790_000_000 * SECOND
END = START + 600 * SECOND
MS = 1_000_000


def rows_of_a_busy_service(seed: int) -> list[dict[str, Any]]:
    """Rows as the jobs write them: some taken back and written anew, some taken back for good, some written twice."""
    draw = random.Random(seed)
    rows = []
    for n in range(1, 61):
        end = draw.randrange(START - 30 * SECOND, END + 30 * SECOND)
        columns = {"AuthNs": n * MS, "Replica": f"r{n % 3}", "Outcome": draw.choice(["ok", "error"])}
        row = request(n, duration_ns=draw.randrange(100, 900) * MS, end_ns=end, **columns)
        back = {**row, "Sign": -1}
        again = {**row, "DurationNs": row["DurationNs"] + MS, "End": row["End"] + MS, "Revision": 2, "Outcome": "ok"}
        rows += draw.choice([[row], [row], [row, back, again], [back, again, row], [row, back], [row, row]])
    draw.shuffle(rows)
    return rows


def standing(store: Store, limit: int) -> list[tuple[int, int, int]]:
    """(start, duration, AuthNs) of the requests of `api` in the window, by the hash of their trace."""
    hashes = {
        row["TraceId"]: int(row["hash"])
        for row in store.query("SELECT DISTINCT TraceId, cityHash64(TraceId) AS hash FROM requests")
    }
    rows = store.query(
        "SELECT TraceId, Revision, Sign, toUnixTimestamp64Nano(Start) AS start, toUnixTimestamp64Nano(End) AS end,"
        " DurationNs, AuthNs FROM requests WHERE Service = 'api'"
    )
    sums: dict[tuple[str, int, int, int, int], int] = {}
    for row in rows:
        if row["end"] >= START and row["start"] < END:
            key = (row["TraceId"], row["Revision"], row["start"], row["DurationNs"], row["AuthNs"])
            sums[key] = sums.get(key, 0) + row["Sign"]
    kept = sorted((key for key, total in sums.items() if total > 0), key=lambda key: hashes[key[0]])[:limit]
    return [key[2:] for key in kept if key[2] >= START]


@pytest.mark.parametrize("limit", [1, 7, 20, 45, 1000])
def test_rows_stand_once_and_a_sample_is_by_trace(store: Store, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    rows = rows_of_a_busy_service(limit)
    for part in (rows[:50], rows[50:]):
        insert_requests(store, part)
    insert_requests(store, [request(99, duration_ns=MS, end_ns=START + SECOND, Service="other")])
    monkeypatch.setattr(read, "MAX_REQUESTS", limit)
    found = read.observe(store, "api", START, END).requests
    expected = standing(store, limit)
    assert expected
    got = zip(found.start_ns.tolist(), found.duration_ns.tolist(), found.whole[:, 1].tolist(), strict=True)
    assert list(got) == expected
    assert [found.replicas[k] for k in found.replica] == [f"r{int(auth / MS) % 3}" for *_, auth in expected]


def test_more_rows_than_the_sample_of_which_all_but_few_are_taken_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [request(n, duration_ns=n * MS, end_ns=START + n * SECOND) for n in range(1, 21)]
    insert_requests(store, [*rows, *({**row, "Sign": -1} for row in rows[3:])])
    monkeypatch.setattr(read, "MAX_REQUESTS", 5)
    assert sorted(read.observe(store, "api", START, END).requests.duration_ns.tolist()) == [MS, 2 * MS, 3 * MS]


def test_one_trace_with_more_requests_than_the_sample(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    end = START + SECOND
    insert_requests(store, [request(1, duration_ns=n * MS, end_ns=end, SpanId=f"{n:016x}") for n in range(1, 21)])
    monkeypatch.setattr(read, "MAX_REQUESTS", 5)
    assert len(read.observe(store, "api", START - SECOND, end).requests) == 5


def test_a_service_without_requests_is_empty(store: Store) -> None:
    found = read.observe(store, "api", START, END)
    assert (len(found.requests), found.startups, found.gpus) == (0, (), {})

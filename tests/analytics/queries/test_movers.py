"""What moved since the same hours a day before."""

from __future__ import annotations

from typing import Any

from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries.movers import movers
from tailtrace.analytics.queries.window import DAY_NS, window_of
from tailtrace.ingest.store import Store

MS = 1_000_000
WINDOW = window_of(T0 - 3000 * SECOND, T0 + SECOND)


def rows(day: int, first: int, queue_ms: int, n: int = 300, **columns: Any) -> list[dict[str, Any]]:
    """`n` requests of 100 ms and some more, of which `queue_ms` in the queue, `day` days before."""
    return [
        request(first + at, duration_ns=(100 + queue_ms) * MS + at * 10_000, QueueNs=queue_ms * MS, DecodeNs=90 * MS,
                end_ns=T0 - day * DAY_NS - at * 9 * SECOND, **columns)
        for at in range(n)
    ]  # fmt: skip


def test_the_stage_that_grew_is_named(store: Store) -> None:
    insert_requests(
        store, rows(1, 1000, 10) + rows(0, 2000, 60) + rows(1, 3000, 5, Service="b") + rows(0, 4000, 5, Service="b")
    )
    found = movers(store, WINDOW)
    assert (found.compared, found.judged, found.total) == (True, 2, 1)
    (one,) = found.movers
    assert (one.service, one.model, one.stage) == ("api", "m", "queue")
    assert 48 * MS <= one.stage_change_ns <= 52 * MS
    assert 48 * MS <= one.change_ns <= 52 * MS
    assert 1.4 < one.ratio < 1.5


def test_what_got_faster_moves_too_and_few_requests_never(store: Store) -> None:
    insert_requests(
        store,
        rows(7, 1000, 60) + rows(0, 2000, 10) + rows(7, 3000, 5, 50, Service="b") + rows(0, 4000, 500, 50, Service="b"),
    )
    found = movers(store, WINDOW, back_ns=7 * DAY_NS)
    assert [(one.service, one.stage, one.stage_change_ns < 0) for one in found.movers] == [("api", "queue", True)]
    assert found.judged == 1


def test_nothing_to_compare_with_is_said(store: Store) -> None:
    insert_requests(store, rows(0, 2000, 60))
    found = movers(store, WINDOW)
    assert (found.compared, found.judged, found.movers) == (False, 0, [])

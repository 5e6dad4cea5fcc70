"""Filters, order, paging and totals of the list."""

from __future__ import annotations

import pytest
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries import RequestFilter, list_requests, to_json
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

MS = 1_000_000


@pytest.fixture
def filled(store: Store) -> Store:
    """120 requests of `api` (durations 1 to 120 ms), children of `engine`, one start-up."""
    rows = [request(n, duration_ns=n * MS, QueueNs=n * MS // 2) for n in range(1, 121)]
    rows[4].update(Outcome="error", ErrorType="500", Model="other", Route="/v1/embeddings")
    children = [request(n, duration_ns=n * MS // 2, Service="engine", IsRoot=False) for n in range(1, 11)]
    for child in children:
        child["SpanId"] = "f" + child["SpanId"][1:]
    insert_requests(store, [*rows, *children, request(999, duration_ns=60 * SECOND, Kind="startup")])
    return store


def pages(store: Store, **wanted: object) -> tuple[list[list[str]], set[int]]:
    found, totals, cursor = [], set(), None
    for _ in range(20):
        page = list_requests(store, RequestFilter(cursor=cursor, limit=50, **wanted))  # type: ignore[arg-type]
        found.append([row.trace_id for row in page.requests])
        totals.add(page.total)
        cursor = page.next
        if cursor is None:
            break
    return found, totals


def test_newest_first_in_pages_without_gap_or_repeat(filled: Store) -> None:
    found, totals = pages(filled)
    assert [len(page) for page in found] == [50, 50, 20]
    assert totals == {120}
    assert [int(trace, 16) for page in found for trace in page] == list(range(120, 0, -1))


def test_slowest_first(filled: Store) -> None:
    found, totals = pages(filled, order="slowest")
    assert totals == {120}
    assert [int(trace, 16) for page in found for trace in page] == list(range(120, 0, -1))


def test_equal_keys_are_paged_through(store: Store) -> None:
    insert_requests(store, [request(n, duration_ns=5 * MS, end_ns=T0) for n in range(1, 121)])
    for order in ("newest", "slowest"):
        found, totals = pages(store, order=order)
        assert totals == {120}
        assert sorted(int(trace, 16) for page in found for trace in page) == list(range(1, 121))


@pytest.mark.parametrize(
    ("wanted", "total"),
    [
        ({}, 120),
        ({"is_root": None}, 130),
        ({"is_root": False}, 10),
        ({"is_root": None, "service": "engine"}, 10),
        ({"kind": "startup"}, 1),
        ({"kind": ""}, 121),
        ({"model": "other"}, 1),
        ({"outcome": "error"}, 1),
        ({"route": "/v1/embeddings"}, 1),
        ({"min_duration_ns": 100 * MS}, 21),
        ({"max_duration_ns": 10 * MS}, 10),
        ({"min_duration_ns": 10 * MS, "max_duration_ns": 10 * MS}, 1),
        ({"text": "EMBEDD"}, 1),
        ({"text": f"{77:032X}"}, 1),
        ({"text": "100%_'; DROP TABLE requests"}, 0),
        ({"since_ns": T0 + 100 * SECOND}, 21),
        ({"until_ns": T0 + 100 * SECOND}, 99),
    ],
)
def test_filters(filled: Store, wanted: dict[str, object], total: int) -> None:
    page = list_requests(filled, RequestFilter(limit=1000, **wanted))  # type: ignore[arg-type]
    assert (page.total, len(page.requests), page.next) == (total, total, None)


def test_a_rewritten_request_is_listed_once_as_it_is_now(filled: Store) -> None:
    old = request(60, duration_ns=60 * MS, QueueNs=30 * MS)
    new = request(60, duration_ns=500 * MS, QueueNs=400 * MS, Outcome="timeout", Revision=2)
    insert_requests(filled, [{**old, "Sign": -1}, new])
    page = list_requests(filled, RequestFilter(order="slowest", limit=2))
    assert page.total == 120
    assert (int(page.requests[0].trace_id, 16), page.requests[0].outcome) == (60, "timeout")
    assert int(page.requests[1].trace_id, 16) == 120
    same = list_requests(filled, RequestFilter(text=f"{60:032x}"))
    assert [row.duration_ns for row in same.requests] == [500 * MS]


@pytest.mark.parametrize("order", ["newest", "slowest", "queue"])
def test_a_list_is_the_same_beside_a_request_that_was_taken_back(filled: Store, order: str) -> None:
    """Rows that were taken back make the list read keys first; without them a page is one query."""
    before, _ = pages(filled, order=order)
    whole = list_requests(filled, RequestFilter(order=order, limit=50)).requests
    gone = request(1000, duration_ns=200 * MS, QueueNs=100 * MS, end_ns=T0 + 121 * SECOND)
    for sign in (1, -1):  # apart, as rows of one insert are collapsed by it
        insert_requests(filled, [{**gone, "Sign": sign}])
    assert filled.query("SELECT count() AS n FROM requests WHERE Sign < 0", role="ui") == [{"n": 1}]
    assert pages(filled, order=order) == (before, {120})
    assert list_requests(filled, RequestFilter(order=order, limit=50)).requests == whole


def test_a_request_that_is_stored_twice_is_listed_once(filled: Store) -> None:
    insert_requests(filled, [request(120, duration_ns=120 * MS, QueueNs=60 * MS)])
    found, _ = pages(filled, order="slowest")
    assert [int(trace, 16) for page in found for trace in page] == list(range(120, 0, -1))


def test_a_row_holds_its_stages_in_order_and_shares(filled: Store) -> None:
    insert_requests(
        filled, [request(500, duration_ns=100 * MS, DecodeNs=60 * MS, TokenizeNs=10 * MS, DerivedStages=["decode"])]
    )
    row = list_requests(filled, RequestFilter(limit=1)).requests[0]
    assert [(one.stage, one.duration_ns, one.share, one.derived) for one in row.stages] == [
        ("tokenize", 10 * MS, 0.1, False),
        ("decode", 60 * MS, 0.6, True),
    ]
    assert row.unexplained_ns == 30 * MS
    assert row.start_unix_ns == str(T0 + 500 * SECOND - 100 * MS)
    assert (row.ttft_ns, row.input_tokens, row.streaming) == (None, None, True)
    assert b"NaN" not in to_json(row)


def test_cursors_of_elsewhere_are_refused(filled: Store) -> None:
    cursor = list_requests(filled, RequestFilter(limit=1)).next
    for bad in ("x", "é", "WyJhIl0", cursor):
        with pytest.raises(Rejected, match="cursor"):
            list_requests(filled, RequestFilter(limit=1, order="slowest", cursor=bad))
    with pytest.raises(Rejected, match="1 to 1000"):
        list_requests(filled, RequestFilter(limit=0))


def test_nothing_stored_is_an_empty_list(store: Store) -> None:
    page = list_requests(store, RequestFilter())
    assert (page.requests, page.total, page.next) == ([], 0, None)

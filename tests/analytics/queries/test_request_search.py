"""Heatmap, facets, orders and attribute search over the same requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeding import SECOND, T0, insert_requests, insert_traces, request

from tailtrace.analytics.queries.attribute_search import Term, parse_terms
from tailtrace.analytics.queries.facets import facets
from tailtrace.analytics.queries.heatmap import heatmap
from tailtrace.analytics.queries.request_filter import RequestFilter
from tailtrace.analytics.queries.requests import list_requests
from tailtrace.analytics.queries.window import MINUTE_NS, window_of
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import SpanData, encode_traces

MS = 1_000_000


@pytest.fixture
def filled(store: Store, tmp_path: Path) -> Store:
    """Ten requests a second apart, 100 to 1,000 ms; queue grows as decode shrinks; one trace with attributes."""
    insert_requests(
        store,
        [
            request(n, duration_ns=n * 100 * MS, QueueNs=n * MS, DecodeNs=(20 - n) * MS, Model="ab"[n % 2], Replica="")
            for n in range(1, 11)
        ],
    )
    span = SpanData(
        trace_id=(7).to_bytes(16, "big"), span_id=(1).to_bytes(8, "big"), parent_span_id=b"", name="call", kind=3,
        start_unix_ns=T0 + 6 * SECOND, end_unix_ns=T0 + 7 * SECOND,
        attributes={"http.response.status_code": 503, "user.tier": "gold's", "a}b": "x"},
    )  # fmt: skip
    insert_traces(store, tmp_path, [encode_traces({"service.name": "api"}, [span])], "searched")
    return store


def numbers(store: Store, **wanted: object) -> list[int]:
    found = list_requests(store, RequestFilter(**wanted))  # type: ignore[arg-type]
    return [int(row.trace_id, 16) for row in found.requests]


def test_any_stage_orders_the_list_and_its_pages(filled: Store) -> None:
    assert numbers(filled, order="decode")[:3] == [1, 2, 3]
    assert numbers(filled, order="queue", limit=4) == [10, 9, 8, 7]
    first = list_requests(filled, RequestFilter(order="queue", limit=4))
    assert numbers(filled, order="queue", limit=4, cursor=first.next) == [6, 5, 4, 3]
    with pytest.raises(Rejected, match="no order"):
        numbers(filled, order="End; DROP")


def test_attributes_are_searched_literally_and_by_type(filled: Store) -> None:
    for found in (
        "http.response.status_code=503", "http.response.status_code>=500", "http.response.status_code<1e3",
        'user.tier="gold\'s"', "user.tier~GOLD", "a}b=x", "service.name=api user.tier", "user.tier!=silver",
    ):  # fmt: skip
        assert numbers(filled, attributes=found) == [7], found
    for missed in ("http.response.status_code>503", "http_response=503", "user.tier=gold", "nothing"):
        assert numbers(filled, attributes=missed) == [], missed


def test_searches_that_cannot_be_read_are_refused() -> None:
    assert parse_terms("a.b>=2 c") == [Term("a.b", ">=", "2"), Term("c", "", "")]
    for bad in ('a="b', "a>b", "a b c d e f"):
        with pytest.raises(Rejected):
            parse_terms(bad)


def test_the_heatmap_counts_every_request_once(filled: Store) -> None:
    window = window_of(T0, T0 + MINUTE_NS)
    found = heatmap(filled, window, RequestFilter(service="api", limit=1))
    assert found.total == 10
    top = found.slowest[-1]
    assert [trace for trace in top if trace] == [f"{10:032x}"]
    assert found.low_ns[-1] < 1000 * MS <= found.high_ns[-1]
    assert found.low_ns[0] < 100 * MS <= found.high_ns[0]
    assert {point.n for point in found.percentiles[0]} <= {0, 10}
    assert heatmap(filled, window, RequestFilter(model="none")).counts == []


def test_facets_count_values_and_leave_empty_ones_out(filled: Store) -> None:
    found = facets(filled, RequestFilter())
    assert found.total == 10
    by_name = {one.name: [(value.value, value.requests) for value in one.values] for one in found.facets}
    assert by_name["model"] == [("a", 5), ("b", 5)]
    assert by_name["service"] == [("api", 10)]
    assert "replica" not in by_name

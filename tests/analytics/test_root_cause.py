"""The ranking of services: edges, kinds of request, nothing to compare."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries.root_cause import paths_of, root_cause, services_of
from tailtrace.analytics.queries.selection import Selection
from tailtrace.analytics.statistics.root_cause import rank
from tailtrace.ingest.store import Store

MS = 1_000_000
PATH = pa.list_(
    pa.struct([(name, pa.string()) for name in ("stage", "service", "name", "edge")] + [("ns", pa.uint64())])
)


def place(service: str, ns: int, edge: str = "", stage: str = "app") -> dict[str, object]:
    return {"stage": stage, "service": service, "name": "call", "edge": edge, "ns": ns}


def test_an_edge_counts_for_its_callee_and_half_for_its_caller() -> None:
    paths = pa.array([[place("a", 10), place("a", 40, "a->b", "network"), place("b", 5)], [place("b", 7)]], PATH)
    assert services_of(paths) == ["a", "b"]
    assert paths_of(paths, ["a", "b"]).by_request(2).tolist() == [[30, 45], [0, 7]]


def test_like_is_compared_with_like() -> None:
    """The window has more of the long kind; within each kind only the second service is slower."""
    kind = np.array([0] * 8 + [1] * 2 + [0] * 2 + [1] * 8)
    scored = np.where(kind[:, None] == 1, [[100.0, 50.0]], [[10.0, 5.0]])
    scored[10:, 1] += 3
    window = np.arange(20) >= 10
    assert rank(scored, kind, window, ~window) == pytest.approx([0, 3])


def test_kinds_without_a_reference_are_left_out() -> None:
    kind, window = np.array([0, 1]), np.array([False, True])
    assert rank(np.ones((2, 3)), kind, window, ~window).tolist() == [0, 0, 0]


def test_a_slow_network_before_a_service_is_that_service(store: Store) -> None:
    def one(number: int, edge_ms: int) -> dict[str, object]:
        path = [place("shop", 20 * MS), place("shop", edge_ms * MS, "shop->cart", "network"), place("cart", 5 * MS)]
        return request(number, duration_ns=(25 + edge_ms) * MS, Path=path, NetworkNs=edge_ms * MS)

    insert_requests(store, [one(k, 1 if k < 100 else 30) for k in range(200)])
    middle = T0 + 100 * SECOND
    found = root_cause(
        store, Selection("api", middle, middle + 1000 * SECOND), Selection("api", T0 - 1000 * SECOND, middle)
    )
    assert (found.requests, found.reference_requests, found.reason) == (100, 100, None)
    assert [(one.service, one.extra_ns) for one in found.suspects] == [
        ("cart", 29 * MS),
        ("shop", pytest.approx(14.5 * MS)),
    ]
    empty = root_cause(store, Selection("api", 0, 1), Selection("api", 0, 1))
    assert (empty.suspects, empty.reason) == ([], "0 and 0 requests; 20 of each are needed")

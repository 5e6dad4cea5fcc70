"""Overview, series, services: figures from the rollups."""

from __future__ import annotations

import pytest
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries import overview, resolve_window, series, services, to_json
from tailtrace.analytics.queries.window import DAY_NS, MINUTE_NS
from tailtrace.ingest.store import Store

MS = 1_000_000


@pytest.fixture
def filled(store: Store) -> Store:
    """1,000 answered requests of 100 ms (half decode), 20 of 1 s (80 % queue), 10 failed, 5 cancelled; over 1,035 s."""
    rows = [
        request(n, duration_ns=100 * MS, DecodeNs=50 * MS, TtftNs=20 * MS, PrefillTtftNs=20 * MS) for n in range(1000)
    ]
    rows += [request(n, duration_ns=1000 * MS, QueueNs=800 * MS, DecodeNs=200 * MS) for n in range(1000, 1020)]
    rows += [request(n, duration_ns=5 * MS, Outcome="error") for n in range(1020, 1030)]
    rows += [request(n, duration_ns=5 * MS, Outcome="cancelled") for n in range(1030, 1035)]
    rows += [request(n, duration_ns=9000 * MS, Service="nightly", Kind="job") for n in range(2000, 2003)]
    insert_requests(store, rows)
    return store


def test_one_service_in_figures(filled: Store) -> None:
    window = resolve_window(filled, since=str(T0), until=str(T0 + 1080 * SECOND))
    found = overview(filled, window)
    assert [one.service for one in found.services] == ["api"]
    api = found.services[0]
    assert (api.requests, api.outcomes) == (1035, {"ok": 1020, "error": 10, "cancelled": 5})
    assert api.error_share == 10 / 1035
    assert api.cancelled_share == 5 / 1035
    assert window is not None
    assert api.per_second == 1035 * SECOND / (window.until_ns - window.since_ns)
    p50, p95, p99 = api.duration
    assert [one.n for one in api.duration] == [1020] * 3
    assert [one.hollow for one in api.duration] == [False, False, False]
    assert p50.value_ns == pytest.approx(100 * MS, rel=0.01)
    assert p95.value_ns == pytest.approx(100 * MS, rel=0.01)
    assert p99.value_ns == pytest.approx(1000 * MS, rel=0.01)
    assert [one.n for one in api.ttft] == [1000] * 3
    assert api.tpot == []


def test_the_tail_is_split_by_what_the_tail_spent(filled: Store) -> None:
    api = overview(filled, resolve_window(filled)).services[0]
    median, tail = api.duration_split
    assert median.q == 0.5
    assert [(one.stage, round(one.share, 3)) for one in median.stages] == [("decode", 0.5)]
    assert median.unexplained_ns + sum(one.duration_ns for one in median.stages) == median.value_ns
    assert tail.unexplained_ns + sum(one.duration_ns for one in tail.stages) == tail.value_ns
    # ranks 960 to 1020: 41 usual requests and all 20 slow ones
    assert (tail.rank_low, tail.rank_high) == (960, 1020)
    queue = next(one for one in tail.stages if one.stage == "queue")
    assert queue.share == pytest.approx(20 * 800 / (41 * 100 + 20 * 1000), abs=0.001)
    assert api.top_stage is not None
    assert api.top_stage.stage == "queue"
    assert api.staged


def test_nothing_is_null_not_nan(store: Store) -> None:
    assert overview(store, resolve_window(store)).services == []
    insert_requests(store, [request(1, duration_ns=MS, Outcome="error")])
    found = overview(store, resolve_window(store))
    assert found.services[0].duration == []
    assert found.services[0].top_stage is None
    assert b"NaN" not in to_json(found)


def test_all_entries_or_only_roots(filled: Store) -> None:
    insert_requests(filled, [request(3000 + n, duration_ns=MS, Service="engine", IsRoot=False) for n in range(3)])
    assert [one.service for one in overview(filled, resolve_window(filled, span="6h"), is_root=None).services] == [
        "api",
        "engine",
    ]
    assert [one.service for one in overview(filled, resolve_window(filled, span="6h"), is_root=False).services] == [
        "engine"
    ]


def test_series_keep_empty_steps_empty(filled: Store) -> None:
    window = resolve_window(filled, since=str(T0 - 120 * SECOND), until=str(T0 + 60 * SECOND))
    assert window is not None
    found = series(filled, window, "api")
    assert found.step_ns == MINUTE_NS
    assert len(found.times_unix_ns) == len(found.per_second) == len(found.percentiles[0]) == 4
    assert found.per_second[:2] == [0.0, 0.0]
    assert found.percentiles[0][0].value_ns is None
    assert found.percentiles[0][3].value_ns == pytest.approx(100 * MS, rel=0.01)
    assert [one.stage for one in found.stages] == ["decode", "unexplained"]
    assert found.stages[0].share == [None, None, 0.5, 0.5]


def test_tiers_agree(filled: Store) -> None:
    insert_requests(filled, [request(n, duration_ns=300 * MS, end_ns=T0 - n * DAY_NS) for n in range(1, 21)])
    day = overview(filled, resolve_window(filled, span="30d"))
    assert (day.tier, day.services[0].requests) == ("1d", 1055)
    hour = overview(filled, resolve_window(filled, span="3d"))
    assert (hour.tier, hour.services[0].requests) == (
        "1h",
        1038,
    )  # the hours are whole: the window begins at 14:00 and T0 - 3 d is 14:13


def test_services_offer_what_there_is(filled: Store) -> None:
    insert_requests(filled, [request(4000, duration_ns=MS, Service="chat", Model="big", Engine="vllm", Simulated=True)])
    found = services(filled, resolve_window(filled, span="6h")).services
    assert [(one.service, one.requests, one.roots) for one in found] == [("api", 1035, 1035), ("chat", 1, 1)]
    assert found[0].outcomes == ["cancelled", "error", "ok"]
    assert (found[1].models, found[1].engines, found[1].simulated) == (["big"], ["vllm"], True)


def test_the_newest_step_is_no_drop_because_it_is_not_over(store: Store) -> None:
    # One a second, up to 20 s into a minute, and one in the first moment of a later one.
    insert_requests(store, [request(n, duration_ns=SECOND, end_ns=T0 - n * SECOND) for n in range(140)])
    window = resolve_window(store, span="1h")
    assert window is not None
    assert series(store, window, "api").per_second[-2:] == pytest.approx([1.0, 1.0], rel=0.06)
    insert_requests(store, [request(999, duration_ns=SECOND, end_ns=T0 + 41 * SECOND)])
    window = resolve_window(store, span="1h")
    assert window is not None
    assert series(store, window, "api").per_second[-1] == pytest.approx(1 / 3)  # of three seconds, the least

"""GPU time, busy and idle: nothing is lost, nothing is counted twice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import SECOND, SINCE, UNTIL, requests, steps

from tailtrace.analytics.verdicts.idle import (
    GpuSeries,
    attribute,
    bound_causes,
    busy_shares,
    cells,
    covered,
    timeline,
    waiting_causes,
)  # fmt: skip
from tailtrace.analytics.verdicts.observed import Startup

NO_STEPS = steps(SINCE, UNTIL).where(np.zeros(400, np.bool_))


def series(busy: list[float], every_ns: int = 10 * SECOND, dram: float = 0.6, sm: float = 0.6) -> GpuSeries:
    n = len(busy)
    at = SINCE + every_ns * (1 + np.arange(n))
    return GpuSeries(at, np.array(busy), np.full(n, dram), np.full(n, sm), np.zeros(n))


def test_cells_are_seconds_and_cover_the_window() -> None:
    edges = cells(SINCE, SINCE + 90 * SECOND)
    assert len(edges) == 91
    assert set(np.diff(edges)) == {SECOND}
    day = cells(SINCE, SINCE + 86_400 * SECOND)
    assert (len(day), day[0], day[-1]) == (7201, SINCE, SINCE + 86_400 * SECOND)


@given(st.lists(st.tuples(st.integers(-50, 150), st.integers(0, 80)), max_size=20))
def test_covered_time_equals_the_slow_sum(intervals: list[tuple[int, int]]) -> None:
    edges = np.array([0, 10, 20, 45, 100], np.int64)
    begin = np.array([a for a, _ in intervals], np.int64)
    end = np.array([a + n for a, n in intervals], np.int64)
    slow = [
        sum(max(0, min(a + n, hi) - max(a, lo)) for a, n in intervals) / (hi - lo)
        for lo, hi in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
    assert np.allclose(covered(edges, begin, end), slow)


@given(st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1)), min_size=1, max_size=60), st.integers(1, 10**10))
def test_totals_sum_to_the_window_to_the_nanosecond(shares: list[float], cell_ns: int) -> None:
    edges = SINCE + cell_ns * np.arange(len(shares) + 1)
    names = np.full(len(shares), "decode_memory", dtype=object)
    totals, stretches = attribute(edges, {"g": np.array(shares)}, {"g": names}, {"g": names})
    assert sum(totals.values()) == cell_ns * len(shares)
    assert all(ns > 0 for ns in totals.values())
    assert stretches[0].start_ns == edges[0]
    assert stretches[-1].end_ns == edges[-1]
    assert all(a.end_ns == b.start_ns for a, b in pairwise(stretches))


def test_a_reading_covers_the_time_since_the_one_before_and_no_more() -> None:
    edges = cells(SINCE, SINCE + 60 * SECOND)
    busy = busy_shares(edges, series([1.0, 0.25]), NO_STEPS)
    assert busy[:10].tolist() == [1.0] * 10
    assert busy[10:20].tolist() == [0.25] * 10
    assert np.isnan(busy[20:]).all()


def test_a_reading_speaks_for_as_long_as_its_neighbours_do() -> None:
    rare, often = SINCE + 60 * SECOND * np.arange(1, 11), SINCE + 600 * SECOND + SECOND * np.arange(1, 301)
    at = np.concatenate([rare, often, often[-1] + 300 * SECOND + SECOND * np.arange(1, 31)])  # a pause of 300 s
    n = len(at)
    read = GpuSeries(at, np.full(n, 0.5), np.full(n, 0.5), np.full(n, 0.5), np.zeros(n))
    edges = cells(SINCE, int(at[-1]))
    busy = busy_shares(edges, read, NO_STEPS)
    assert np.isfinite(busy[:900]).all()
    assert np.isnan(busy[910:1190]).all()
    assert np.isfinite(busy[1205:]).all()


def test_without_counters_steps_say_how_busy_and_without_both_nothing_does() -> None:
    edges = cells(SINCE, SINCE + 60 * SECOND)
    assert np.isnan(busy_shares(edges, None, NO_STEPS)).all()
    seen = busy_shares(edges, None, steps(SINCE, UNTIL))
    assert 0 < float(seen.mean()) < 1


def test_idle_waits_for_what_requests_are_in() -> None:
    edges = cells(SINCE, SINCE + 60 * SECOND)
    nobody = requests(SINCE, UNTIL, 0)
    assert set(waiting_causes(edges, nobody, ())) == {"no_work"}
    one = requests(SINCE + 5 * SECOND, SINCE + 6 * SECOND, 1, extra_ms={"external": 20_000})
    causes = waiting_causes(edges, one, ())
    assert causes[3] == "no_work"
    assert causes[15] == "external_dependency"
    started = waiting_causes(edges, nobody, (Startup("r", SINCE + 30 * SECOND, SINCE + 40 * SECOND),))
    assert started[35] == "cold_start"
    assert started[45] == "no_work"


def test_busy_is_bound_by_memory_compute_launches_or_unknown() -> None:
    edges = cells(SINCE, SINCE + 10 * SECOND)
    assert set(bound_causes(edges, series([1.0], dram=0.7), NO_STEPS, False)) == {"decode_memory"}
    assert set(bound_causes(edges, series([1.0], dram=0.2, sm=0.9), NO_STEPS, False)) == {"prefill_compute"}
    assert set(bound_causes(edges, series([1.0], dram=0.1, sm=0.1), NO_STEPS, False)) == {"launch_bound"}
    assert set(bound_causes(edges, series([1.0], dram=float("nan")), NO_STEPS, False)) == {"unknown"}
    assert set(bound_causes(edges, None, NO_STEPS, False)) == {"unknown"}


@given(st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1)), min_size=1, max_size=200), st.integers(1, 80))
def test_a_timeline_keeps_the_time_that_the_gpu_ran(shares: list[float], most: int) -> None:
    edges = SINCE + SECOND * np.arange(len(shares) + 1)
    busy = np.array(shares)
    names = np.full(len(shares), "decode_memory", dtype=object)
    made = timeline(edges, busy, names, np.full(len(shares), "no_work", dtype=object), most)
    assert len(made) == min(most, len(shares))
    if most >= len(shares):
        for cell, share in zip(made, shares, strict=True):
            assert cell.state == ("no_data" if np.isnan(share) else "busy" if share >= 0.5 else "idle")
            assert cell.busy is None if np.isnan(share) else cell.busy == pytest.approx(share)
    known = np.isfinite(busy)
    assert all(cell.busy is None or 0 <= cell.busy <= 1 for cell in made)
    assert any(cell.busy is not None for cell in made) == bool(known.any())

"""The decision tree on the rows of the experiment that it was made from, and its sums."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrace.instrumentation.loop_verdict import Window, quantile, split


def window(lag: float, late: float, queued: float, cpu: float, queue: float, n: int = 50) -> Window:
    return Window(1.0, [lag] * n, [late] * n, [queued] * n, cpu, queue)


def main_cause(found: dict[str, float]) -> str:
    return max(found, key=lambda cause: found[cause]) if found else ""


@pytest.mark.parametrize(
    ("what", "measured", "cause"),
    [
        ("idle, quiet", window(0.00013, 0.0001, 0.0, 0.02, 0.004), ""),
        ("idle, contended", window(0.00017, 0.0001, 0.0, 0.02, 0.004), ""),
        ("interpreter held by another thread, quiet", window(0.0148, 0.0052, 0.0, 0.02, 0.15), "gil"),
        ("interpreter held by another thread, contended", window(0.0152, 0.0066, 0.00098, 0.02, 0.15), "gil"),
        ("six burners on two CPUs", window(0.023, 0.0032, 0.003, 0.02, 0.32), "cpu_starved"),
        ("blocking call, quiet", window(0.031, 0.0006, 0.0, 0.02, 0.0), "loop_blocked"),
        ("blocking call, contended", window(0.0306, 0.00011, 0.0, 0.015, 0.007), "loop_blocked"),
        ("CPU work in the loop, quiet", window(0.031, 0.005, 0.0, 0.82, 0.0), "loop_cpu"),
        ("CPU work in the loop, contended", window(0.060, 0.0059, 0.0, 0.45, 0.44), "loop_cpu"),
    ],
)
def test_the_rows_of_the_experiment(what: str, measured: Window, cause: str) -> None:
    assert main_cause(split(measured)) == cause, what


def test_two_causes_at_once_are_split_in_time() -> None:
    found = split(window(0.010, 0.006, 0.0024, 0.02, 0.1, n=10))
    assert found == pytest.approx({"cpu_starved": 0.04, "gil": 0.06})


def test_where_only_the_probes_tail_is_late_starvation_is_no_more_than_what_it_waited() -> None:
    lags, late = [0.030] * 20, [0.0001] * 19 + [0.016]
    found = split(Window(1.0, lags, late, [0.0] * 19 + [0.016], 0.02, 0.02))
    assert found == pytest.approx({"cpu_starved": 0.016, "loop_blocked": 0.584})


def test_a_probe_that_looks_half_as_often_stands_for_twice_what_it_waited() -> None:
    lags, late = [0.030] * 40, [0.0001] * 19 + [0.016]
    found = split(Window(1.0, lags, late, [0.0] * 19 + [0.016], 0.02, 0.02))
    assert found == pytest.approx({"cpu_starved": 0.032, "loop_blocked": 1.168})


seconds = st.lists(st.floats(0, 0.2), min_size=1, max_size=60)
shares = st.floats(0, 1)


@given(lags=seconds, late=seconds, queued=seconds, cpu=shares, queue=shares)
def test_the_parts_sum_to_the_lateness_or_there_are_none(
    lags: list[float], late: list[float], queued: list[float], cpu: float, queue: float
) -> None:
    found = split(Window(1.0, lags, late, queued, cpu, queue))
    assert all(part > 0 for part in found.values())
    if quantile(lags, 0.99) < 0.005:
        assert found == {}
    else:
        assert sum(found.values()) == pytest.approx(sum(lags))

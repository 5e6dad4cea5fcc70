"""The replay of engines: hand-made cases, a slow twin, and what never happens; step times found again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrace.analytics.statistics.replay import Engine, Replayed, replay
from tailtrace.analytics.statistics.step_times import StepTimes, concurrency, from_requests, from_steps, isotonic

FLAT = StepTimes(np.full(9, 10.0), np.array([1.0, 1000.0]), np.array([20.0, 20.0]), "steps", 1)


def engine(replicas: int = 1, limit: int = 8, budget: int = 100, times: StepTimes = FLAT) -> Engine:
    return Engine(times, limit, budget, np.ones(replicas), np.zeros(replicas))


def test_one_request_alone() -> None:
    found = replay([5.0], [10], [4], [-1], engine())
    # Prefilled in one step of 20, then three decode steps of 10.
    assert (found.scheduled_ns[0], found.first_ns[0], found.last_ns[0]) == (5, 25, 55)


def test_a_prompt_larger_than_the_budget_takes_several_steps() -> None:
    found = replay([0.0], [250], [1], [-1], engine())
    assert (found.first_ns[0], found.last_ns[0]) == (60, 60)


def test_a_full_batch_makes_the_next_one_wait_for_a_place() -> None:
    found = replay([0.0, 1.0], [10, 10], [3, 3], [-1, -1], engine(limit=1))
    assert found.last_ns.tolist() == [40, 80]
    assert found.scheduled_ns.tolist() == [0, 40]


def test_an_arrival_joins_after_the_step_that_runs_and_its_prompt_holds_up_the_others() -> None:
    found = replay([0.0, 33.0], [10, 10], [6, 1], [-1, -1], engine())
    # 0-20 prefill; decodes end at 30, 40; the second is prefilled 40-60 together with a decode; then 70, 80.
    assert found.scheduled_ns.tolist() == [0, 40]
    assert found.first_ns.tolist() == [20, 60]
    assert found.last_ns.tolist() == [80, 60]


def test_requests_go_to_the_replica_with_fewest_outstanding_once_it_is_ready() -> None:
    late = Engine(FLAT, 1, 100, np.ones(2), np.array([0.0, 50.0]))
    found = replay([0.0, 1.0, 60.0], [10] * 3, [10] * 3, [-1] * 3, late)
    assert found.replica.tolist() == [0, 0, 1]
    assert found.scheduled_ns[2] == 60


def replay_slowly(arrival: list[int], prompt: list[int], output: list[int], limit: int, budget: int) -> list[Any]:
    """One replica, one step at a time."""
    waiting, running = list(range(len(arrival))), []
    left, produced, marks = list(prompt), [0] * len(arrival), [[-1, -1, -1] for _ in arrival]
    now = 0
    while waiting or running:
        if not running and waiting and arrival[waiting[0]] > now:
            now = arrival[waiting[0]]
        decoding = [j for j in running if left[j] == 0]
        room, chunks = budget - len(decoding), {}
        for j in running:
            if left[j] and room > 0:
                chunks[j] = min(left[j], room)
                room -= chunks[j]
        while waiting and arrival[waiting[0]] <= now and room > 0 and len(running) < limit:
            j = waiting.pop(0)
            running.append(j)
            marks[j][0] = now
            chunks[j] = min(left[j], room)
            room -= chunks[j]
        now += 20 if chunks else 10
        for j in decoding:
            produced[j] += 1
            marks[j][2] = now
        for j, tokens in chunks.items():
            left[j] -= tokens
            if not left[j]:
                produced[j] = 1
                marks[j][1] = marks[j][2] = now
        running = [j for j in running if left[j] or produced[j] < output[j]]
    return marks


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 60), st.integers(1, 12)), min_size=1, max_size=25),
    st.integers(1, 4), st.integers(8, 40),
)  # fmt: skip
def test_the_kernel_does_what_a_step_at_a_time_does(
    requests: list[tuple[int, int, int]], limit: int, budget: int
) -> None:
    requests = sorted(requests, key=lambda each: each[0])
    arrival, prompt, output = ([each[k] for each in requests] for k in range(3))
    found = replay(arrival, prompt, output, [-1] * len(arrival), engine(limit=limit, budget=budget))
    slow = np.array(replay_slowly(arrival, prompt, output, limit, budget))
    assert np.stack((found.scheduled_ns, found.first_ns, found.last_ns), axis=1).tolist() == slow.tolist()
    _never_backwards(found, np.array(arrival))


def _never_backwards(found: Replayed, arrival: Any) -> None:
    assert (found.scheduled_ns >= arrival).all()
    assert (found.first_ns > found.scheduled_ns).all()
    assert (found.last_ns >= found.first_ns).all()


def test_step_times_are_found_again() -> None:
    generator = np.random.default_rng(3)
    decodes, prompts = generator.integers(1, 17, 4000), generator.integers(1, 2000, 4000)
    prompts[::2] = 0
    true = StepTimes(1e6 * (20 + np.arange(17)), np.array([1.0, 500.0, 2500.0]), 1e6 * np.array([25, 40, 200.0]), "", 0)
    fit = from_steps(prompts, decodes, true.step_ns(prompts, decodes) * generator.lognormal(0, 0.03, 4000), 16)
    assert fit is not None
    assert fit.decode_ns[1:] == pytest.approx(true.decode_ns[1:], rel=0.03)
    for tokens in (100, 600, 1500):
        assert fit.step_ns(tokens, 4) == pytest.approx(true.step_ns(tokens, 4), rel=0.08)


def test_step_times_from_requests_alone() -> None:
    beside = np.repeat(np.arange(1.0, 9.0), 50)
    fit = from_requests(np.full(400, 100), np.full(400, 30e6), (20 + beside) * 1e6, beside, 8)
    assert fit is not None
    assert fit.decode_ns[1:] == pytest.approx((20 + np.arange(1, 9)) * 1e6)
    assert from_requests(np.full(9, 100), np.full(9, 1), np.full(9, 1), np.ones(9), 8) is None


def test_concurrency_is_the_mean_number_beside() -> None:
    found = concurrency(np.array([0, 0, 50]), np.array([100, 50, 60]), np.array([0, 0, 0]))
    assert found.tolist() == [1.6, 2.0, 2.0]
    assert concurrency(np.array([0, 0]), np.array([9, 9]), np.array([0, 1])).tolist() == [1, 1]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30))
def test_isotonic_never_falls_and_keeps_the_mean(values: list[float]) -> None:
    found = isotonic(np.array(values), np.ones(len(values)))
    assert (np.diff(found) >= -1e-9).all()
    assert found.mean() == pytest.approx(np.mean(values), abs=1e-6)

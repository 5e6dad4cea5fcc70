from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Scenario
from tailtrace.lab.service.engine import Engine, Stretch
from tailtrace.lab.simulation import Simulation

START = 1_790_000_000_000_000_000
HALF_HOUR = 1800 * 10**9


def simulate(name: str, seed: int = 1, length_ns: int = HALF_HOUR) -> Simulation:
    simulation = Simulation(Scenario.load(name), start_unix_ns=START, length_ns=length_ns, seed=seed)
    for _ in simulation.run():
        assert simulation.arrived == simulation.ended + simulation.running
    return simulation


@pytest.mark.parametrize("name", ["healthy", "capacity", "preemption", "kv_full", "cold_start", "batch_forming"])
def test_no_request_is_lost_or_doubled(name: str) -> None:
    """Arrived = ended + still inside, and the engines hold exactly those that reached them."""
    simulation = simulate(name)
    numbers = [request.number for request in simulation.finished]
    assert len(numbers) == len(set(numbers)) == simulation.ended
    open_requests = [request for request in simulation.requests if not request.outcome]
    assert len(open_requests) == simulation.running == simulation.arrived - simulation.ended
    submitted = Counter(request.service for request in open_requests if request.submitted_ns >= 0)
    for service, engines in simulation.engines.items():
        # Inside an engine, or past its last token on the way back, which ends after the run.
        assert sum(engine.load for engine in engines) == submitted[service]


def test_marks_of_a_served_request_are_in_order() -> None:
    for r in simulate("healthy").finished:
        if r.outcome == "ok" and r.batched_ns < 0:
            marks = [
                r.arrival_ns, r.routed_ns, r.dispatched_ns, r.engine_start_ns, r.parsed_ns, r.template_start_ns,
                r.templated_ns, r.tokenized_ns, r.submitted_ns, r.scheduled_ns,
                r.first_token_ns, r.last_token_ns, r.ended_ns,
            ]  # fmt: skip
            assert all(left <= right for left, right in pairwise(marks))


def test_token_gaps_count_every_token_and_sum_to_the_decode() -> None:
    seen = 0
    for request in simulate("preemption", length_ns=2 * HALF_HOUR).finished:
        if request.outcome == "ok" and request.batched_ns < 0:
            assert request.produced == request.output_tokens
            assert sum(request.gaps.values()) == request.produced - 1
            assert (
                sum(gap * count for gap, count in request.gaps.items())
                == request.last_token_ns - request.first_token_ns
            )
            seen += bool(request.preemptions)
    assert seen > 10


@pytest.mark.parametrize("name", ["kv_full", "preemption", "head_of_line"])
def test_memory_is_never_overdrawn(name: str) -> None:
    scenario = Scenario.load(name)
    highest: Counter[int] = Counter()

    def watch(service: str, replica: int, stretch: Stretch) -> None:
        engine = simulation.engines[service][replica]
        if isinstance(engine, Engine):
            scheduler = engine.scheduler
            assert (
                scheduler.used_blocks == sum(sequence.blocks for sequence in scheduler.running) <= scheduler.kv_blocks
            )
            assert len(scheduler.running) <= scheduler.max_batch
            assert 0.0 <= stretch.kv_usage <= 1.0
            highest[replica] = max(highest[replica], round(100 * stretch.kv_usage))

    simulation = Simulation(scenario, start_unix_ns=START, length_ns=2 * HALF_HOUR, seed=5, on_stretch=watch)
    for _ in simulation.run():
        pass
    assert highest[0] > 90


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    def shape(simulation: Simulation) -> list[tuple[int, int, str]]:
        return [(request.number, request.ended_ns, request.outcome) for request in simulation.finished]

    assert shape(simulate("healthy", 3)) == shape(simulate("healthy", 3))
    assert shape(simulate("healthy", 3)) != shape(simulate("healthy", 4))


def test_a_surge_leaves_the_other_requests_as_they_were() -> None:
    """Each purpose draws from its own stream, so that runs can be compared request by request."""

    def drawn(requests: list[Request]) -> set[tuple[int, int, int, int]]:
        return {(r.arrival_ns, r.input_tokens, r.output_tokens, r.auth_ns) for r in requests}

    surge = Simulation(Scenario.load("capacity"), start_unix_ns=START, length_ns=2 * HALF_HOUR, seed=1)
    calm = Simulation(Scenario.load("capacity").without_faults(), start_unix_ns=START, length_ns=2 * HALF_HOUR, seed=1)
    assert drawn(calm.requests) < drawn(surge.requests)


def test_arrivals_follow_the_rate_and_the_day() -> None:
    simulation = Simulation(
        Scenario.load("healthy"), start_unix_ns=1_790_035_200_000_000_000, length_ns=86400 * 10**9, seed=2
    )
    chat = [request.arrival_ns for request in simulation.requests if request.service == "llm-chat"]
    assert len(chat) == pytest.approx(0.35 * 86400, rel=0.05)
    by_hour = Counter(at // (3600 * 10**9) for at in chat)
    assert by_hour[15] > 1.8 * by_hour[3]


def test_a_restart_loses_what_ran_and_keeps_what_waited() -> None:
    simulation = simulate("cold_start", 3)
    lost = [request for request in simulation.finished if request.outcome == "error"]
    assert lost
    assert {request.ended_ns for request in lost} == {1200 * 10**9}
    assert {request.replica for request in lost} == {1}
    startup = simulation.startups[0]
    assert (startup.service, startup.replica, startup.start_ns, startup.length_ns) == (
        "llm-chat",
        1,
        1200 * 10**9,
        180 * 10**9,
    )
    served = [r for r in simulation.finished if r.replica == 1 and r.service == "llm-chat" and r.outcome == "ok"]
    assert not [r for r in served if 1200 * 10**9 <= r.scheduled_ns < 1380 * 10**9]

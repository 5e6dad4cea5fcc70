from __future__ import annotations

import pytest

from tailtrace.lab.effects import EFFECTS
from tailtrace.lab.scenario import Scenario
from tailtrace.lab.truth import run as simulate
from tailtrace.lab.truth import stage_times, truth

END = 1_790_000_000_000_000_000


@pytest.mark.parametrize("code", sorted(EFFECTS))
def test_the_stage_that_should_grow_grows(code: str) -> None:
    """Against the same run with nothing injected."""
    scenario = Scenario.load(code)
    made = truth(scenario, end_unix_ns=END, seed=3)
    assert (made.scenario, made.seed) == (code, 3)
    (cause,) = made.causes
    assert (cause.code, cause.stage) == (code, EFFECTS[code].stage)
    assert cause.end_unix_ns - cause.start_unix_ns == 1200 * 10**9
    assert cause.start_unix_ns == END - 2400 * 10**9
    assert cause.service == ("gateway" if EFFECTS[code].gateway else scenario.faults[0].service)
    assert (cause.replica is not None) == ("/" in scenario.faults[0].target)
    # 15 % of what the stage took without the cause, and at least 20 s over the requests of half an hour.
    without = simulate(scenario.without_faults(), end_unix_ns=END, seed=3)
    window = scenario.faults[0].window_ns(without.length_ns)
    usual = sum(
        stage_times(request, without.constants).get(cause.stage, 0)
        for request in without.finished
        if window[0] <= request.arrival_ns < window[1]
    )
    assert cause.added_ns > max(0.1 * usual, 20 * 10**9)


@pytest.mark.parametrize("code", ["auth_dependency", "capacity", "throttled", "cold_start", "slow_reader"])
def test_a_cause_of_no_strength_adds_nothing(code: str) -> None:
    import dataclasses

    scenario = Scenario.load(code)
    idle = dataclasses.replace(
        scenario, faults=tuple(dataclasses.replace(fault, strength=0.0) for fault in scenario.faults)
    )
    assert [cause.added_ns for cause in truth(idle, end_unix_ns=END, seed=3).causes] == [0]


def test_where_only_one_stage_is_touched_the_others_stay() -> None:
    """A delay in front of the engine moves requests in time, but adds nothing to what comes after."""

    def mean_ns(scenario: Scenario, stage: str) -> float:
        simulation = simulate(scenario, end_unix_ns=END, seed=3)
        times = [
            stage_times(request, simulation.constants).get(stage, 0)
            for request in simulation.finished
            if request.service == "embed" and request.outcome == "ok"
        ]
        return sum(times) / len(times)

    scenario = Scenario.load("auth_dependency")
    added = mean_ns(scenario, "auth") - mean_ns(scenario.without_faults(), "auth")
    assert added > 50e6
    for stage in ("rate_limit", "route", "dispatch", "parse", "tokenize", "engine_submit", "batch_wait", "forward"):
        assert abs(mean_ns(scenario, stage) - mean_ns(scenario.without_faults(), stage)) < 0.02 * added

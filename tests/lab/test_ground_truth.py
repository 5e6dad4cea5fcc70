from __future__ import annotations

import dataclasses

import pytest

from tailtrace.lab.effects import EFFECTS
from tailtrace.lab.faults import targets_of
from tailtrace.lab.ground_truth import run as simulate
from tailtrace.lab.ground_truth import stage_times, stage_total_ns, truth
from tailtrace.lab.scenario import Scenario

END = 1_790_000_000_000_000_000


@pytest.mark.parametrize("code", sorted(code for code, effect in EFFECTS.items() if effect.stage))
def test_the_stage_that_should_grow_grows(code: str) -> None:
    """Against the same run with nothing injected: by a tenth of what it took, and at least 20 s over half an hour."""
    scenario = Scenario.load(code)
    (fault,) = scenario.faults
    stage = EFFECTS[code].stage
    hit, calm = (simulate(each, end_unix_ns=END, seed=3) for each in (scenario, scenario.without_faults()))
    window = fault.window_ns(hit.length_ns)
    (usual, grown) = (
        sum(stage_total_ns(simulation, service, stage, window) for service in targets_of(scenario, fault))
        for simulation in (calm, hit)
    )
    assert grown - usual > max(0.1 * usual, 20 * 10**9)


@pytest.mark.parametrize("code", ["auth_dependency", "throttled"])
def test_truth_says_what_where_and_when(code: str) -> None:
    made = truth(Scenario.load(code), end_unix_ns=END, seed=3)
    assert (made.scenario, made.seed) == (code, 3)
    (cause,) = made.causes
    assert (cause.code, cause.stage) == (code, EFFECTS[code].stage)
    assert (cause.start_unix_ns, cause.end_unix_ns) == (END - 2400 * 10**9, END - 1200 * 10**9)
    assert cause.service == ("gateway" if code == "auth_dependency" else "llm-chat")
    assert (cause.replica is not None) == (code == "throttled")
    assert cause.added_ns > 20 * 10**9


@pytest.mark.parametrize("code", ["auth_dependency", "capacity", "throttled", "cold_start", "slow_reader"])
def test_a_cause_of_no_strength_adds_nothing(code: str) -> None:
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


def test_the_json_beside_a_scenario_has_exactly_these_keys() -> None:
    told = truth(Scenario.load("throttled"), end_unix_ns=END, seed=3).as_json()
    assert list(told) == ["scenario", "seed", "causes"]
    (cause,) = told["causes"]
    assert list(cause) == ["code", "stage", "service", "replica", "start_unix_ns", "end_unix_ns", "added_ns"]
    assert (cause["start_unix_ns"], told["seed"]) == (str(END - 2400 * 10**9), 3)
    assert type(cause["added_ns"]) is int

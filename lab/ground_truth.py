"""Ground truth: what was done to a run, and how much time it really added where it should show.

Each cause is left out once and the run repeated with the same seed. `added_ns` is the difference between the two,
summed over the requests that arrived from its start until ten minutes after its end.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailtrace.lab.clock import SECOND
from tailtrace.lab.constants import Constants
from tailtrace.lab.effects import EFFECTS
from tailtrace.lab.faults import targets_of
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Fault, Scenario
from tailtrace.lab.simulation import Simulation
from tailtrace.lab.telemetry.journey import Journey
from tailtrace.lab.telemetry.processes import Processes

AFTERMATH_NS = 600 * SECOND


@dataclass(frozen=True, slots=True)
class InjectedCause:
    """`replica` is a service.instance.id, None when every replica of the service is hit."""

    code: str
    stage: str
    service: str
    replica: str | None
    start_unix_ns: int
    end_unix_ns: int
    added_ns: int


@dataclass(frozen=True, slots=True)
class Truth:
    scenario: str
    seed: int
    causes: tuple[InjectedCause, ...]

    def as_json(self) -> dict[str, Any]:
        """What is written beside a scenario; instants are strings, as in OTLP/JSON."""
        found = dataclasses.asdict(self)
        found["causes"] = [
            {key: str(value) if key.endswith("_unix_ns") else value for key, value in cause.items()}
            for cause in found["causes"]
        ]
        return found


def stage_times(request: Request, constants: Constants) -> dict[str, int]:
    """Nanoseconds of each stage of an ended request, overlaps given to the most upstream stage as the product does."""
    journey = Journey(request, constants)
    times: Counter[str] = Counter()
    for stage, start, end in journey.engine:
        if stage == "stream_out":
            start = max(start, request.last_token_ns)
        times[stage] += max(0, end - start)
    for stage, start, end in journey.gateway:
        if stage == "stream_out" and request.outcome == "ok":
            start = max(start, journey.client_end)
        times[stage] += max(0, end - start)
    times["decode"] -= times["preempted"]
    return dict(times)


def run(scenario: Scenario, *, end_unix_ns: int, hours: float | None = None, seed: int = 0) -> Simulation:
    """The finished simulation of a scenario; `simulation.finished` holds every request that ended."""
    length_ns = int((scenario.hours if hours is None else hours) * 3600 * SECOND)
    simulation = Simulation(scenario, start_unix_ns=end_unix_ns - length_ns, length_ns=length_ns, seed=seed)
    for _ in simulation.run():
        pass
    return simulation


def stage_total_ns(simulation: Simulation, service: str, stage: str, window: tuple[int, int]) -> int:
    """The time that requests to `service` which arrived in the window spent in the stage, start-ups included."""
    start, end = window
    total = sum(
        stage_times(request, simulation.constants).get(stage, 0)
        for request in simulation.finished
        if request.service == service and start <= request.arrival_ns < end
    )
    if stage == "engine_init":
        total += sum(each.length_ns for each in simulation.startups if each.service == service)
    return total


def truth(scenario: Scenario, *, end_unix_ns: int, hours: float | None = None, seed: int = 0) -> Truth:
    """What `history` with the same arguments contains; costs one run for each cause and one more."""
    whole = run(scenario, end_unix_ns=end_unix_ns, hours=hours, seed=seed)
    without = [
        run(
            dataclasses.replace(scenario, faults=scenario.faults[:index] + scenario.faults[index + 1 :]),
            end_unix_ns=end_unix_ns, hours=hours, seed=seed,
        )
        for index in range(len(scenario.faults))
    ]  # fmt: skip
    return truth_of(scenario, whole, without, seed)


def truth_of(scenario: Scenario, whole: Simulation, without: Sequence[Simulation], seed: int) -> Truth:
    """The same from finished runs: the whole one, and for each fault the one that lacks it."""
    processes = Processes(scenario, whole.faults, length_ns=whole.length_ns, seed=seed)
    causes: list[InjectedCause] = []
    for fault, rest in zip(scenario.faults, without, strict=True):
        start, end = fault.window_ns(whole.length_ns)
        window = (start, min(end + AFTERMATH_NS, whole.length_ns))
        effect = EFFECTS[fault.code]
        added = {
            service: stage_total_ns(whole, service, effect.stage, window)
            - stage_total_ns(rest, service, effect.stage, window)
            for service in targets_of(scenario, fault)
        }
        if effect.gateway:
            added = {scenario.fleet.gateway: sum(added.values())}
        replica = _replica(processes, fault, start)
        first, last = whole.start_unix_ns + start, whole.start_unix_ns + end
        causes += [
            InjectedCause(fault.code, effect.stage, service, replica, first, last, added_ns)
            for service, added_ns in added.items()
        ]
    return Truth(scenario.name, seed, tuple(causes))


def _replica(processes: Processes, fault: Fault, at_ns: int) -> str | None:
    if fault.replica is None:
        return None
    return str(processes.engine(fault.service, fault.replica, at_ns)["service.instance.id"])

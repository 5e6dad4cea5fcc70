"""The faults of one run as functions of time: what a part asks before it does its work."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from tailtrace.lab.effects import EFFECTS, SCALING, Knob
from tailtrace.lab.scenario import Fault, Scenario

_Window = tuple[int, int, float, str, int | None]


def targets_of(scenario: Scenario, fault: Fault) -> list[str]:
    """The services whose requests a fault touches."""
    if fault.service:
        return [fault.service]
    effect = EFFECTS[fault.code]
    return [service.name for service in scenario.fleet.services if effect.gateway or service.kind == effect.kind]


class Faults:
    """Values of the knobs at a time (nanoseconds from the start of the run) for a service and one of its replicas."""

    def __init__(self, scenario: Scenario, length_ns: int) -> None:
        self._windows: dict[str, list[_Window]] = defaultdict(list)
        for fault in scenario.faults:
            effect = EFFECTS[fault.code]
            start, end = fault.window_ns(length_ns)
            if start >= end:  # over before this run begins
                continue
            for knob, full in effect.knobs.items():
                value = 1.0 + fault.strength * (full - 1.0) if knob in SCALING else fault.strength * full
                if knob in SCALING:
                    value = max(value, 0.0)
                for target in targets_of(scenario, fault):
                    self._windows[knob].append((start, end, value, target, fault.replica))

    def value(self, knob: Knob, at_ns: int, service: str, replica: int | None = None) -> float:
        """The knob now: the product of scaling faults, the sum of adding ones."""
        scaling = knob in SCALING
        result = 1.0 if scaling else 0.0
        for start, end, value, target, index in self._windows.get(knob, ()):
            if start <= at_ns < end and target == service and index in (None, replica):
                result = result * value if scaling else result + value
        return result

    def values(self, knob: Knob, at_ns: NDArray[np.int64], service: str) -> NDArray[np.float64]:
        """The knob at many times, whichever replica; shape of `at_ns`."""
        scaling = knob in SCALING
        result = np.full(at_ns.shape, 1.0 if scaling else 0.0)
        for start, end, value, target, _ in self._windows.get(knob, ()):
            if target == service:
                inside = (at_ns >= start) & (at_ns < end)
                result[inside] = result[inside] * value if scaling else result[inside] + value
        return result

    def windows(self, knob: Knob, service: str) -> list[tuple[int, int, float, int | None]]:
        """(start, end, value, replica) of each fault that turns the knob for the service, in order of start."""
        return sorted(
            (
                (start, end, value, index)
                for start, end, value, target, index in self._windows.get(knob, ())
                if target == service
            ),
            key=lambda window: window[:2],
        )

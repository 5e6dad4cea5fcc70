from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tailtrace.lab import Scenario
from tailtrace.lab.clock import MILLISECOND, SECOND
from tailtrace.lab.faults import Faults
from tailtrace.lab.live.gpu_readings import EVERY_NS, LATE_NS, GpuReadings
from tailtrace.lab.service.engine import Stretch
from tailtrace.lab.service.scheduler import Batch

STARTED = 5_000 * SECOND
ANCHOR = 1_790_000_000 * SECOND


class Steps:
    """GPU readings of a replica whose clock stands where the test puts it."""

    def __init__(self) -> None:
        scenario = Scenario.load("live")
        self.now_ns = 0
        self.points: list[Any] = []
        clock: Any = SimpleNamespace(start_ns=STARTED, now_ns=lambda: self.now_ns)
        self.readings = GpuReadings(
            scenario, scenario.service("llm-chat"), 1, ["GPU-a", "GPU-b"], Faults(scenario, 1), clock, ANCHOR,
            self.points.extend,
        )  # fmt: skip

    def decode(self, start_ms: int, length_ms: int) -> None:
        batch = Batch([], [], [])
        stretch = Stretch(start_ms * MILLISECOND, length_ms * MILLISECOND, 1, batch, 1, 0, 0, 0.5, 0)
        self.readings.record(1, stretch)

    def busy(self) -> dict[str, list[tuple[float, float]]]:
        """By GPU: (seconds on the monotonic clock since the engine's start, share)."""
        found: dict[str, list[tuple[float, float]]] = {}
        for point in self.points:
            if point.name == "hw.gpu.utilization":
                at = (point.time_unix_ns - ANCHOR - STARTED) / SECOND
                found.setdefault(point.attributes["hw.id"], []).append((at, point.value))
        return found


def test_a_step_is_in_the_readings_of_the_seconds_in_which_it_ran() -> None:
    steps = Steps()
    steps.decode(start_ms=250, length_ms=500)
    steps.decode(start_ms=2_900, length_ms=400)
    steps.now_ns = 5 * EVERY_NS + LATE_NS
    steps.readings.collect()
    expected = [(1.0, 0.5), (2.0, 0.0), (3.0, pytest.approx(0.1)), (4.0, pytest.approx(0.3)), (5.0, 0.0)]
    assert steps.busy() == {"GPU-a": expected, "GPU-b": expected}


def test_a_second_is_read_once_and_not_before_its_last_step_has_ended() -> None:
    steps = Steps()
    steps.now_ns = EVERY_NS + LATE_NS - 1
    steps.readings.collect()
    assert steps.busy() == {}
    steps.decode(start_ms=900, length_ms=200)
    steps.now_ns = 2 * EVERY_NS + LATE_NS
    steps.readings.collect()
    steps.readings.collect()
    assert steps.busy()["GPU-a"] == [(1.0, pytest.approx(0.1)), (2.0, pytest.approx(0.1))]

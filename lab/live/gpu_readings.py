"""GPU readings of a live engine, made from the steps it really took: its GPUs are the only part that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.lab.clock import SECOND, RealClock
from tailtrace.lab.faults import Faults
from tailtrace.lab.scenario import Scenario, Service
from tailtrace.lab.service.engine import Stretch
from tailtrace.lab.telemetry.counters import Counters

EVERY_NS: Final = SECOND
LATE_NS: Final = SECOND // 2
"""A step counts when it has ended: readings wait for the longest there is."""


class GpuReadings:
    """One replica's readings, once a second, given to `put` while `tell` runs."""

    def __init__(
        self, scenario: Scenario, service: Service, replica: int, uuids: list[str], faults: Faults, clock: RealClock,
        anchor_ns: int, put: Callable[[list[Point]], None],
    ) -> None:  # fmt: skip
        """`anchor_ns`: what makes the monotonic clock nanoseconds since 1970."""
        self._service, self._replica, self._uuids, self._faults = service, replica, uuids, faults
        self._clock, self._put = clock, put
        self._start_unix_ns = clock.start_ns + anchor_ns
        self._counters = Counters(scenario, 0, EVERY_NS)
        self._at_ns = 0

    def record(self, replica: int, stretch: Stretch) -> None:
        self._counters.record(self._service.name, replica, stretch)

    async def tell(self) -> None:
        while True:
            self.collect()
            await asyncio.sleep(EVERY_NS / SECOND)

    def collect(self) -> None:
        """Give the readings of every interval that is over."""
        points: list[Point] = []
        while self._at_ns + EVERY_NS + LATE_NS <= self._clock.now_ns():
            points += self._counters.gpu_points(
                self._faults, self._start_unix_ns, self._service, self._replica, self._at_ns, self._uuids
            )
            self._at_ns += EVERY_NS
        if points:
            self._put(points)

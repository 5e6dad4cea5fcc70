"""The sampler: GPUs in one thread at the fast tier, the host in another once a second, everything sent once a second.

A driver call that hangs stops its own thread only; the other says so.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.calls import Meters
from tailtrace.instrumentation.sampler.drops import Drops
from tailtrace.instrumentation.sampler.gpus import DriverReplaced, Gpus
from tailtrace.instrumentation.sampler.host.machine import Machine
from tailtrace.instrumentation.sampler.series import Series

log = logging.getLogger("tailtrace")

INTERVAL_S: Final = 0.25
HOST_S: Final = 1.0
SEND_S: Final = 1.0
OWN_S: Final = 10.0
STUCK_S: Final = 10.0
_RESCAN_ROUNDS: Final = 10


class Sampler:
    """`run` blocks until `stop`. `put` takes the points of a tick, from several threads."""

    def __init__(
        self, put: Callable[[list[Point]], None], *, interval_s: float = INTERVAL_S, gpu: bool = True,
        pids: Iterable[int] = (), pattern: re.Pattern[str] | None = None,
        losses: Callable[[], dict[str, int]] = dict,
    ) -> None:  # fmt: skip
        self._put, self._interval_s, self._losses = put, interval_s, losses
        self.absences, self.meters, self.drops = Absences(), Meters(), Drops()
        self._gpus = Gpus(put, self.absences, self.meters, self.drops, interval_s=interval_s) if gpu else None
        on_gpu = self._gpus.processes if self._gpus is not None else tuple
        self._machine = Machine(self.absences, pids=pids, pattern=pattern, on_gpu=on_gpu)
        self._stop = threading.Event()
        self._start_ns = self.meters.start_unix_ns = time.time_ns()
        self._ticks, self._beat_s = 0, time.monotonic()
        self._counted, self._counted_s = 0, time.monotonic()
        self.driver_replaced = False

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Until `stop`, or until only a new process can go on (`driver_replaced`)."""
        thread = None
        if self._gpus is not None:
            thread = threading.Thread(target=self._run_gpus, name="tailtrace-gpus", daemon=True)
            thread.start()
        try:
            self._run_host()
        finally:
            self._stop.set()
            if thread is not None:
                thread.join(3.0)

    def _run_gpus(self) -> None:
        assert self._gpus is not None
        due = time.monotonic()
        try:
            while not self._stop.is_set():
                now = time.monotonic()
                self._gpus.tick(now)
                self._ticks += 1
                self._beat_s = time.monotonic()
                # Ticks that were missed are left out: a slow driver makes fewer samples, never a backlog.
                due = max(due + self._interval_s, self._beat_s + self._interval_s / 4)
                self._stop.wait(due - self._beat_s)
            self._gpus.close()
        except DriverReplaced as error:
            log.warning("tailtrace: the driver was replaced (%s)", error)
            self.driver_replaced = True
            self._stop.set()
        except Exception:
            log.exception("tailtrace: the GPU thread ended")
            self.absences.note("hw.gpu.*", "sampler_fault")

    def _run_host(self) -> None:
        due, own_due, rounds = time.monotonic(), time.monotonic() + OWN_S / 5, 0
        while not self._stop.is_set():
            points: list[Point] = []
            try:
                if rounds % _RESCAN_ROUNDS == 0:
                    self._machine.rescan()
                self._machine.tick(time.time_ns, points)
            except Exception:
                self.drops.add("host_fault")
                if rounds % 600 == 0:
                    log.exception("tailtrace: the host could not be read")
            rounds += 1
            now = time.monotonic()
            self._watch(now)
            if now >= own_due:
                own_due = now + OWN_S
                points += self._own(now)
            points += self.absences.points(time.time_ns())
            if points:
                self._put(points)
            due = max(due + HOST_S, now)
            self._stop.wait(due - time.monotonic())

    def _watch(self, now_s: float) -> None:
        if self._gpus is None:
            return
        stuck = now_s - self._beat_s > STUCK_S
        if stuck:
            self.absences.note("hw.gpu.*", "call_stuck")
        elif self.absences.reasons().get("hw.gpu.*") == "call_stuck":
            self.absences.clear("hw.gpu.*")

    def _own(self, now_s: float) -> list[Point]:
        at = time.time_ns()
        points = self.meters.points(at)
        points.append(Series("tailtrace.sampler.cpu").point(time.process_time(), at, self._start_ns))
        ticks = self._ticks - self._counted
        if ticks:
            points.append(Series("tailtrace.sampler.interval").point((now_s - self._counted_s) / ticks, at))
        self._counted, self._counted_s = self._ticks, now_s
        for reason, count in {**self.drops.counts, **self._losses()}.items():
            series = Series("tailtrace.sampler.dropped", {"tailtrace.reason": reason})
            points.append(series.point(count, at, self._start_ns))
        return points

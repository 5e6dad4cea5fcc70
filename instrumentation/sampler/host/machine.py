"""Everything of the host that is read once a second."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host import cgroup
from tailtrace.instrumentation.sampler.host.disks import Disks
from tailtrace.instrumentation.sampler.host.infiniband import InfiniBand
from tailtrace.instrumentation.sampler.host.network import Network
from tailtrace.instrumentation.sampler.host.pids import PROC, chosen, parents
from tailtrace.instrumentation.sampler.host.pressure import Pressure
from tailtrace.instrumentation.sampler.host.processes import Process

MOST_PROCESSES = 64


class Machine:
    """`tick` reads all; `rescan` looks for processes that came: those given, those that match, those on a GPU."""

    def __init__(
        self,
        absences: Absences,
        *,
        pids: Iterable[int] = (),
        pattern: re.Pattern[str] | None = None,
        on_gpu: Callable[[], Iterable[int]] = tuple,
        proc: Path = PROC,
    ) -> None:
        self._absences, self._proc = absences, proc
        self._pids, self._pattern, self._on_gpu = set(pids), pattern, on_gpu
        self._processes: dict[int, Process] = {}
        self._parents: dict[int, int] = {}
        place = cgroup.find("cpu", proc)
        unified = place[0] if place is not None and place[1] == 2 else None
        self._service_quotas = cgroup.ServiceQuotas(absences, place, proc)
        self._parts = (
            Pressure(absences, proc, unified), cgroup.CpuQuota(absences, place), self._service_quotas,
            Network(absences, proc), Disks(absences, proc), InfiniBand(),
        )  # fmt: skip

    def rescan(self) -> None:
        self._parents = parents(self._proc, self._parents)
        found = chosen({*self._pids, *self._on_gpu()}, self._pattern, self._proc, self._parents)
        for pid in sorted(found - self._processes.keys())[: MOST_PROCESSES - len(self._processes)]:
            self._processes[pid] = Process(pid, self._absences, self._proc)
        if not self._processes:
            self._absences.note("tailtrace.host.process.cpu", "no_process_watched")
        else:
            self._absences.clear("tailtrace.host.process.cpu")
        self._service_quotas.watch(self._processes)

    def tick(self, clock: Callable[[], int], points: list[Point]) -> None:
        """Each part is stamped with the middle of its own reading."""
        for part in self._parts:
            started = clock()
            made: list[Point] = []
            part.tick(started, made)
            _to_middle(made, started, clock())
            points += made
        for pid, process in list(self._processes.items()):
            if not process.tick(clock(), points):
                del self._processes[pid]


def _to_middle(points: list[Point], started_ns: int, ended_ns: int) -> None:
    late = (ended_ns - started_ns) // 2
    for point in points:
        point.time_unix_ns += late

"""Pressure stall information: time in which tasks waited for CPU, I/O or memory, of the host and of the cgroup."""

from __future__ import annotations

from pathlib import Path

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host.counts import Count
from tailtrace.instrumentation.sampler.host.files import KeptFile

_METRIC = "tailtrace.host.pressure"


class Pressure:
    """The totals, never the averages: they cannot miss anything between two readings."""

    def __init__(self, absences: Absences, proc: Path, cgroup: Path | None) -> None:
        self._absences = absences
        self._files = [
            (resource, "host", KeptFile(proc / "pressure" / resource)) for resource in ("cpu", "io", "memory")
        ]
        if cgroup is not None:
            self._files += [
                (resource, "cgroup", KeptFile(cgroup / f"{resource}.pressure"))
                for resource in ("cpu", "io", "memory")
                if (cgroup / f"{resource}.pressure").exists()
            ]
        self._counts: dict[tuple[str, str, bytes], Count] = {}

    def tick(self, unix_ns: int, points: list[Point]) -> None:
        for resource, scope, file in self._files:
            content = file.read()
            if content is None:
                self._absences.note(f"{_METRIC}/{scope}/{resource}", "no_psi")
                continue
            for line in content.splitlines():
                kind = line[:4]
                if scope == "host" and resource == "cpu" and kind == b"full":
                    continue  # has no meaning host-wide: always 0
                key = (resource, scope, kind)
                count = self._counts.get(key)
                if count is None:
                    attributes = {
                        "tailtrace.resource": resource, "tailtrace.kind": kind.decode(), "tailtrace.scope": scope
                    }  # fmt: skip
                    count = self._counts[key] = Count(_METRIC, attributes, 1000)
                count.add(int(line[line.rindex(b"total=") + 6 :]), unix_ns, points)

"""Whole disks: bytes and busy time; and the host's major page faults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host.counts import Count
from tailtrace.instrumentation.sampler.host.files import KeptFile

_SECTOR_BYTES: Final = 512
_WHOLE_DISK: Final = re.compile(rb"^(sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|nvme\d+n\d+|mmcblk\d+|pmem\d+)$")
"""Partitions would count twice, and so would what is stacked on disks (md, dm, loop)."""


class Disks:
    """Reads diskstats and vmstat."""

    def __init__(self, absences: Absences, proc: Path) -> None:
        self._absences = absences
        self._stats, self._vm = KeptFile(proc / "diskstats"), KeptFile(proc / "vmstat")
        self._counts: dict[bytes, tuple[Count, Count, Count]] = {}
        self._faults = Count("tailtrace.host.page_faults", {"tailtrace.kind": "major"})

    def tick(self, unix_ns: int, points: list[Point]) -> None:
        content = self._stats.read()
        seen = False
        for line in (content or b"").splitlines():
            words = line.split()
            if len(words) < 13 or not _WHOLE_DISK.match(words[2]):
                continue
            seen = True
            counts = self._counts.get(words[2]) or self._new(words[2])
            for count, index in zip(counts, (5, 9, 12), strict=True):
                count.add(int(words[index]), unix_ns, points)
        if not seen:
            self._absences.note("tailtrace.host.disk.io", self._stats.reason or "no_disks")
        vm = self._vm.read()
        at = vm.find(b"pgmajfault ") if vm is not None else -1
        if vm is None or at < 0:
            self._absences.note("tailtrace.host.page_faults", self._vm.reason or "no_column")
        else:
            self._faults.add(int(vm[at : at + 40].split()[1]), unix_ns, points)

    def _new(self, disk: bytes) -> tuple[Count, Count, Count]:
        device = {"system.device": disk.decode("ascii")}
        counts = (
            Count("tailtrace.host.disk.io", {**device, "disk.io.direction": "read"}, _SECTOR_BYTES),
            Count("tailtrace.host.disk.io", {**device, "disk.io.direction": "write"}, _SECTOR_BYTES),
            Count("tailtrace.host.disk.busy", device, 1_000_000),
        )
        self._counts[disk] = counts
        return counts

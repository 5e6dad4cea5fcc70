"""CPU quota of a cgroup, v2 or v1: time throttled, periods, and the limit."""

from __future__ import annotations

from pathlib import Path

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host.counts import Count
from tailtrace.instrumentation.sampler.host.files import KeptFile
from tailtrace.instrumentation.sampler.series import Series


def find(
    controller: str, proc: Path = Path("/proc"), mounted: Path = Path("/sys/fs/cgroup")
) -> tuple[Path, int] | None:
    """This process's cgroup folder that has `cpu.stat`, and its version; None where there is none.

    In a container the path of /proc/self/cgroup may lie outside what is mounted: then the mount itself is its group.
    """
    try:
        lines = (proc / "self/cgroup").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            candidates = [(mounted / path.lstrip("/"), 2), (mounted, 2)]
        elif controller in controllers.split(","):
            candidates = [
                (mounted / folder / path.lstrip("/"), 1) for folder in (controllers, controller)
            ] + [(mounted / folder, 1) for folder in (controllers, controller)]  # fmt: skip
        else:
            continue
        for folder, version in candidates:
            if (folder / "cpu.stat").is_file() and (version == 1 or (folder / "cgroup.controllers").is_file()):
                return folder, version
    return None


class CpuQuota:
    """Throttling of one cgroup."""

    def __init__(self, absences: Absences, place: tuple[Path, int] | None) -> None:
        self._absences = absences
        self._throttled = Count("tailtrace.host.cgroup.throttled", scale=1000 if place and place[1] == 2 else 1)
        self._periods = {
            name: Count("tailtrace.host.cgroup.periods", {"tailtrace.kind": kind})
            for name, kind in (("nr_periods", "all"), ("nr_throttled", "throttled"))
        }
        self._place = place
        self._file = KeptFile(place[0] / "cpu.stat") if place else None

    def tick(self, unix_ns: int, points: list[Point]) -> None:
        if self._file is None or self._place is None:
            self._absences.note("tailtrace.host.cgroup.throttled", "no_cgroup")
            return
        content = self._file.read()
        if content is None:
            self._absences.note("tailtrace.host.cgroup.throttled", str(self._file.reason))
            return
        words = content.decode("ascii", "replace").split()
        values = {name: int(number) for name, number in zip(words[::2], words[1::2], strict=False)}
        throttled = values.get("throttled_usec" if self._place[1] == 2 else "throttled_time")
        if throttled is None:
            self._absences.note("tailtrace.host.cgroup.throttled", "no_controller")
        else:
            self._absences.clear("tailtrace.host.cgroup.throttled")
            self._throttled.add(throttled, unix_ns, points)
        for name, count in self._periods.items():
            if name in values:
                count.add(values[name], unix_ns, points)
        limit = self._limit()
        if limit is None:
            self._absences.note("tailtrace.host.cgroup.cpu_limit", "no_quota")
        else:
            points.append(Series("tailtrace.host.cgroup.cpu_limit").point(limit, unix_ns))

    def _limit(self) -> float | None:
        """CPUs the quota allows; None without a quota."""
        assert self._place is not None
        folder, version = self._place
        try:
            if version == 2:
                quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
                period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
        return None if quota == "max" or int(quota) <= 0 else int(quota) / int(period)

"""CPU quota of cgroups, v2 or v1: time throttled, periods, and the limit; the sampler's own and the services'."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host.counts import Count
from tailtrace.instrumentation.sampler.host.files import KeptFile, content_of
from tailtrace.instrumentation.sampler.series import Series

MOUNTED: Final = Path("/sys/fs/cgroup")
MOST_GROUPS: Final = 16
_MOST_PLACES: Final = 256


def find(
    controller: str, proc: Path = Path("/proc"), mounted: Path = MOUNTED, pid: int | None = None
) -> tuple[Path, int] | None:
    """A process's cgroup folder that has `cpu.stat`, and its version; None where there is none.

    In a container the path of /proc/self/cgroup may lie outside what is mounted: then the mount itself is the group of
    this process. Of another process (`pid`) only the folder that is stated counts.
    """
    try:
        file = proc / ("self" if pid is None else str(pid)) / "cgroup"
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            candidates, roots = [(mounted / path.lstrip("/"), 2)], [(mounted, 2)]
        elif controller in controllers.split(","):
            candidates = [(mounted / folder / path.lstrip("/"), 1) for folder in (controllers, controller)]
            roots = [(mounted / folder, 1) for folder in (controllers, controller)]
        else:
            continue
        for folder, version in (*candidates, *(roots if pid is None else ())):
            if (folder / "cpu.stat").is_file() and (version == 1 or (folder / "cgroup.controllers").is_file()):
                return folder, version
    return None


class CpuQuota:
    """Throttling of one cgroup. `name` is empty for the sampler's own, which has no attribute that says so."""

    def __init__(self, absences: Absences, place: tuple[Path, int] | None, name: str = "") -> None:
        self._absences = absences
        of: dict[str, Any] = {"tailtrace.cgroup": name} if name else {}
        self._suffix = name
        scale = 1000 if place and place[1] == 2 else 1
        self._throttled = Count("tailtrace.host.cgroup.throttled", of, scale)
        self._periods = {
            word: Count("tailtrace.host.cgroup.periods", {**of, "tailtrace.kind": kind})
            for word, kind in ((b"nr_periods", "all"), (b"nr_throttled", "throttled"))
        }
        self._allowed = Series("tailtrace.host.cgroup.cpu_limit", of)
        self._place = place
        self._file = KeptFile(place[0] / "cpu.stat") if place else None
        names = ("cpu.max",) if place and place[1] == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        self._limits = [KeptFile(place[0] / name) for name in names] if place else []

    def close(self) -> None:
        for file in (self._file, *self._limits):
            if file is not None:
                file.close()
        for metric in ("throttled", "cpu_limit"):
            self._absences.clear(f"tailtrace.host.cgroup.{metric}{self._suffix}")

    def tick(self, unix_ns: int, points: list[Point]) -> None:
        if self._file is None or self._place is None:
            self._absent("throttled", "no_cgroup")
            return
        content = self._file.read()
        if content is None:
            self._absent("throttled", str(self._file.reason))
            return
        words = content.split()
        values = dict(zip(words[::2], words[1::2], strict=False))
        throttled = values.get(b"throttled_usec" if self._place[1] == 2 else b"throttled_time")
        if throttled is None:
            self._absent("throttled", "no_controller")
        else:
            self._absences.clear(f"tailtrace.host.cgroup.throttled{self._suffix}")
            self._throttled.add(int(throttled), unix_ns, points)
        for name, count in self._periods.items():
            if name in values:
                count.add(int(values[name]), unix_ns, points)
        limit = self._limit()
        if limit is None:
            self._absent("cpu_limit", "no_quota")
        else:
            self._absences.clear(f"tailtrace.host.cgroup.cpu_limit{self._suffix}")
            points.append(self._allowed.point(limit, unix_ns))

    def _absent(self, metric: str, reason: str) -> None:
        self._absences.note(f"tailtrace.host.cgroup.{metric}{self._suffix}", reason)

    def _limit(self) -> float | None:
        """CPUs the quota allows; None without a quota."""
        try:
            quota, period = b" ".join(file.read() or b"" for file in self._limits).decode("ascii").split()
        except ValueError:
            return None
        return None if quota == "max" or int(quota) <= 0 else int(quota) / int(period)


class ServiceQuotas:
    """The cgroups of watched processes, where they are not the sampler's own: a quota there throttles the service."""

    def __init__(self, absences: Absences, own: tuple[Path, int] | None, proc: Path, mounted: Path = MOUNTED) -> None:
        self._absences, self._own, self._proc, self._mounted = absences, own, proc, mounted
        self._quotas: dict[tuple[Path, int], CpuQuota] = {}
        self._places: dict[bytes, tuple[Path, int]] = {}

    def watch(self, pids: Iterable[int]) -> None:
        """From now on the groups of these processes, at most MOST_GROUPS."""
        places = {place for pid in pids if (place := self._place(pid)) is not None}
        wanted = sorted(places - {self._own}, key=str)[:MOST_GROUPS]
        for place in self._quotas.keys() - set(wanted):
            self._quotas.pop(place).close()
        for place in wanted:
            if place not in self._quotas:
                name = "/" + str(place[0].relative_to(self._mounted))
                self._quotas[place] = CpuQuota(self._absences, place, name)

    def _place(self, pid: int) -> tuple[Path, int] | None:
        """Looked for once for all processes that state the same groups; where there was none, again each time."""
        stated = content_of(f"{self._proc}/{pid}/cgroup") or b""
        place = self._places.get(stated) or find("cpu", self._proc, self._mounted, pid)
        if place is not None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            self._places[stated] = place
        return place

    def tick(self, unix_ns: int, points: list[Point]) -> None:
        for quota in self._quotas.values():
            quota.tick(unix_ns, points)

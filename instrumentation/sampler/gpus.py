"""All GPUs of the host: opens NVML, reads each tier when it is due, and opens it anew when a GPU or driver is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.calls import Meters
from tailtrace.instrumentation.sampler.drops import Drops
from tailtrace.instrumentation.sampler.gpu import Gpu
from tailtrace.instrumentation.sampler.gpu_fields import Counters
from tailtrace.instrumentation.sampler.nvml import MISMATCH, Device, GpuLost, Session, Unavailable, reason_of
from tailtrace.instrumentation.sampler.series import Series
from tailtrace.instrumentation.sampler.throughput import ThroughputThread
from tailtrace.instrumentation.sampler.xid import XidListener

log = logging.getLogger("tailtrace")

SLOW_S: Final = 2.0
RARE_S: Final = 30.0
_FIRST_BACKOFF_S: Final = 1.0
_MAX_BACKOFF_S: Final = 30.0
_STEADY_S: Final = 60.0
"""All GPUs answered for this long: the next loss is a new one, and tried again soon."""


class DriverReplaced(Exception):
    """The loaded library no longer fits the driver: only a new process can load the other one."""


class Gpus:
    """`tick` does what is due. One thread calls it; `sink` takes points from that and from the listeners' threads."""

    def __init__(
        self, sink: Callable[[list[Point]], None], absences: Absences, meters: Meters, drops: Drops, *,
        interval_s: float, listen: bool = True,
    ) -> None:  # fmt: skip
        self._sink, self._absences, self._meters, self._drops = sink, absences, meters, drops
        self._interval_s, self._listen = interval_s, listen
        self._session: Session | None = None
        self._gpus: list[Gpu] = []
        self._lost: dict[str, tuple[Device, int]] = {}
        self._known: set[str] = set()
        self._counters: dict[str, Counters] = {}
        self._xid_counts: dict[tuple[str, int], tuple[int, int]] = {}
        self._xid: XidListener | None = None
        self._throughput: ThroughputThread | None = None
        self._worked = False
        self._backoff_s = self._opened_s = 0.0
        self._open_at = self._slow_at = self._rare_at = 0.0
        self._fast_ticks = 0

    def processes(self) -> set[int]:
        """Pids, as seen here, that had a GPU at the last look."""
        return {pid for gpu in self._gpus for pid in gpu._processes.inside}

    @property
    def is_open(self) -> bool:
        return self._session is not None

    def tick(self, now_s: float) -> None:
        """`now_s`: monotonic seconds. Raises DriverReplaced."""
        if (self._session is None or self._lost) and now_s >= self._open_at:
            self._reopen(now_s)
        if self._session is None:
            return
        if self._backoff_s and not self._lost and now_s - self._opened_s > _STEADY_S:
            self._backoff_s = 0.0
        rare, slow = now_s >= self._rare_at, now_s >= self._slow_at
        if rare and self._fast_ticks and self._session.changed([gpu.device for gpu in self._gpus]):
            log.info("tailtrace: GPUs or MIG instances came or went; they are listed anew")
            self._backoff_s = 0.0
            self._reopen(now_s)
            if self._session is None:
                return
        if rare:
            self._rare_at = now_s + RARE_S
        if slow:
            self._slow_at = now_s + SLOW_S
        points: list[Point] = []
        for gpu in list(self._gpus):
            try:
                if rare:
                    gpu.rare(now_s, time.time_ns(), points)
                self._read(gpu, now_s, slow, points)
            except GpuLost as lost:
                self._lose(gpu, lost.code, now_s, points)
        if points:
            self._sink(points)
        self._fast_ticks += 1
        if self._fast_ticks == 2 and self._throughput is None:
            self._start_throughput()

    def _read(self, gpu: Gpu, now_s: float, slow: bool, points: list[Point]) -> None:
        """Fast and slow tier, stamped with the middle of the reading where the source gives no time of its own."""
        first, started = len(points), time.time_ns()
        gpu.fast(now_s, started, points)
        if slow:
            gpu.slow(now_s, started, points)
        late = (time.time_ns() - started) // 2
        for point in points[first:]:
            if point.time_unix_ns == started:
                point.time_unix_ns = started + late

    def _reopen(self, now_s: float) -> None:
        self.close()
        self._backoff_s = min(max(2 * self._backoff_s, _FIRST_BACKOFF_S), _MAX_BACKOFF_S)
        self._open_at = now_s + self._backoff_s
        try:
            self._session = Session()
            devices = self._session.devices()
        except Unavailable as error:
            self.close()
            if error.code == MISMATCH and self._worked:
                raise DriverReplaced(str(error)) from None
            if self._absences.reasons().get("hw.gpu.*") != error.reason:
                log.warning("tailtrace: no GPU counters: %s", error)
            self._absences.note("hw.gpu.*", error.reason)
            return
        self._absences.clear("hw.gpu.*")
        self._worked = True
        self._opened_s = now_s
        session = self._session
        back = {device.uuid for device in devices}
        for uuid in self._known - back - self._lost.keys():
            self._absences.clear_all(uuid)
        self._known = back
        for uuid, (device, _) in list(self._lost.items()):
            # An instance that its GPU no longer has was taken away, and is not waited for.
            if uuid in back or device.parent in back:
                del self._lost[uuid]
                self._absences.clear_all(uuid)
        for index in range(len(session.failed) + len(devices)):
            metric = f"hw.gpu.*/{index}"
            if index in session.failed:
                self._absences.note(metric, session.failed[index])
            else:
                self._absences.clear(metric)
        self._gpus = []
        for device in devices:
            counters = self._counters.setdefault(device.uuid, Counters())
            counters.reseed()
            self._absences.clear_all(device.uuid)
            self._gpus.append(
                Gpu(session, device, self._meters, self._absences, self._drops, counters, interval_s=self._interval_s)
            )
        self._rare_at = self._slow_at = 0.0
        self._fast_ticks = 0
        if self._listen:
            self._xid = XidListener(session, devices, self._absences, self._sink, self._xid_counts)
            self._xid.start()

    def _start_throughput(self) -> None:
        assert self._session is not None
        wanting = [gpu for gpu in self._gpus if gpu.pcie_by_call]
        self._throughput = ThroughputThread(
            self._session, wanting, self._meters, self._absences, self._drops, self._sink
        )
        self._throughput.start()

    def _lose(self, gpu: Gpu, code: int, now_s: float, points: list[Point]) -> None:
        """Nothing more is read of it until NVML has been opened anew."""
        device, reason = gpu.device, reason_of(code)
        log.warning("tailtrace: GPU %s is lost (%s)", device.uuid, reason)
        gpu.close()
        self._gpus.remove(gpu)
        self._lost[device.uuid] = (device, code)
        self._open_at = now_s + max(self._backoff_s, _FIRST_BACKOFF_S)
        attributes = {
            "hw.id": device.uuid, "hw.type": "gpu", "hw.state": "failed", "hw.name": device.name,
            "tailtrace.reason": reason,
        }  # fmt: skip
        points.append(Series("hw.status", attributes).point(1, time.time_ns()))
        self._absences.note("hw.gpu.*", reason, device.uuid)

    def close(self) -> None:
        for listener in (self._xid, self._throughput):
            if listener is not None:
                listener.stop()
        self._xid = self._throughput = None
        for gpu in self._gpus:
            gpu.close()
        self._gpus = []
        if self._session is not None:
            self._session.close()
            self._session = None

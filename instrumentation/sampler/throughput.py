"""PCIe traffic of GPUs whose driver counts no bytes: by the call that blocks for 20 ms, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.calls import Call, Meters
from tailtrace.instrumentation.sampler.drops import Drops
from tailtrace.instrumentation.sampler.gpu import Gpu
from tailtrace.instrumentation.sampler.nvml import GpuLost, Session
from tailtrace.instrumentation.sampler.series import Series

EVERY_S: Final = 2.0
_KB: Final = 1000
_MARGIN: Final = 1.2
_DIRECTIONS: Final = ((0, "transmit"), (1, "receive"))
_METRIC: Final = "tailtrace.link.bandwidth"


class ThroughputThread:
    """Asks GPU after GPU, each direction in turn, and rests between two rounds; never two calls at once."""

    def __init__(
        self, session: Session, gpus: Iterable[Gpu], meters: Meters, absences: Absences, drops: Drops,
        sink: Callable[[list[Point]], None],
    ) -> None:  # fmt: skip
        self._gpus = list(gpus)
        self._absences, self._drops, self._sink = absences, drops, sink
        api = session.api
        # A meter apart from the others': it is known to be slow, and is not on the fast tick.
        meter = meters["nvmlDeviceGetPcieThroughput"]
        self._calls = {
            (gpu.device.uuid, number): Call(meter, api.NVMLError, _asking(api, gpu, number))
            for gpu in self._gpus
            for number, _ in _DIRECTIONS
        }
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._gpus:
            self._thread = threading.Thread(target=self._run, name="tailtrace-pcie", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for gpu in self._gpus:
                try:
                    points = self._read(gpu)
                except GpuLost:
                    return
                if points:
                    self._sink(points)
                if self._stop.is_set():
                    return

    def _read(self, gpu: Gpu) -> list[Point]:
        points = []
        uuid = gpu.device.uuid
        for number, direction in _DIRECTIONS:
            call = self._calls[uuid, number]
            started = time.time_ns()
            value = call.read(time.monotonic())
            if value is None:
                if call.reason is not None:
                    self._absences.note(f"{_METRIC}/pcie/{direction}", call.reason, uuid)
                continue
            rate = value * _KB
            if gpu.links.pcie_per_s and rate > gpu.links.pcie_per_s * _MARGIN:
                self._drops.add("implausible")  # some drivers answered a thousand times too much
                continue
            attributes = {
                "hw.id": uuid, "hw.type": "gpu", "tailtrace.link": "pcie",
                "network.io.direction": direction, "tailtrace.source": "throughput",
            }  # fmt: skip
            points.append(Series(_METRIC, attributes).point(rate, (started + time.time_ns()) // 2))
        return points


def _asking(api: object, gpu: Gpu, number: int) -> Callable[[], int]:
    handle = gpu.device.handle
    return lambda: int(api.nvmlDeviceGetPcieThroughput(handle, number))  # type: ignore[attr-defined]

"""Who uses a GPU: processes of this PID namespace by name, those outside only as a number."""

from __future__ import annotations

from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.calls import Call, Meters
from tailtrace.instrumentation.sampler.host import pids
from tailtrace.instrumentation.sampler.nvml import Device, Session
from tailtrace.instrumentation.sampler.series import Series

_NO_MEMORY: Final = 0xFFFFFFFFFFFFFFFF


class ProcessesOnGpu:
    """`inside` holds the pids, as this process sees them, that had the GPU at the last look."""

    def __init__(self, session: Session, device: Device, meters: Meters, absences: Absences) -> None:
        api = session.api
        self._device, self._absences = device, absences
        self._hw = {"hw.id": device.uuid, "hw.type": "gpu"}
        name = "nvmlDeviceGetComputeRunningProcesses"
        self._call = Call(meters[name], api.NVMLError, lambda: api.nvmlDeviceGetComputeRunningProcesses(device.handle))
        self.inside: tuple[int, ...] = ()

    def tick(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        metric = "tailtrace.gpu.processes"
        found = self._call.read(now_s)
        if found is None:
            if self._call.reason is not None:
                self._absences.note(metric, self._call.reason, self._device.uuid)
            return
        self._absences.clear(metric, self._device.uuid)
        inside: list[int] = []
        for process in found:
            pid = pids.inner_pid(process.pid)
            if pid is None:
                continue
            inside.append(pid)
            used = process.usedGpuMemory
            if used is not None and used != _NO_MEMORY:
                attributes = {**self._hw, "process.pid": pid, "process.executable.name": pids.name_of(pid)}
                points.append(Series("tailtrace.gpu.process.memory", attributes).point(used, unix_ns))
        self.inside = tuple(inside)
        for namespace, count in (("inside", len(inside)), ("outside", len(found) - len(inside))):
            points.append(Series(metric, {**self._hw, "tailtrace.namespace": namespace}).point(count, unix_ns))

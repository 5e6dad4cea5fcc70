"""GPM: real SM, tensor and memory activity on Hopper and later, from the difference of two samples."""

from __future__ import annotations

from math import inf, isfinite
from struct import Struct
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.calls import Call, Meters
from tailtrace.instrumentation.sampler.nvml import Device, reason_of
from tailtrace.instrumentation.sampler.series import Series

ACTIVITY: Final = {
    1: "tailtrace.gpu.graphics_active", 2: "tailtrace.gpu.sm_active", 3: "tailtrace.gpu.sm_occupancy",
    5: "tailtrace.gpu.tensor_active", 10: "tailtrace.gpu.dram_active",
}  # fmt: skip
PCIE: Final = {20: ("pcie", "transmit"), 21: ("pcie", "receive")}
NVLINK: Final = {60: ("nvlink", "receive"), 61: ("nvlink", "transmit")}
"""GPM's own order: NVLink receives first."""
SHORTEST_S: Final = 0.1
_LONGEST_S: Final = 600.0
_MIB: Final = 1048576
_METRIC: Final = Struct("=4xId24x")
"""Of nvmlGpmMetric_t: error and value."""


class Gpm:
    """Two samples of one GPU or MIG instance, swapped at each tick. `supported` is None until asked."""

    def __init__(self, api: Any, device: Device, meters: Meters, absences: Absences) -> None:
        self._api, self._device, self._absences = api, device, absences
        error = api.NVMLError
        asked = device.parent_handle if device.is_instance else device.handle
        self._support = Call(
            meters["nvmlGpmQueryDeviceSupport"], error, lambda: api.nvmlGpmQueryDeviceSupport(asked).isSupportedDevice
        )
        self._get = Call(meters["nvmlGpmSampleGet"], error, self._take)
        self._evaluate = Call(meters["nvmlGpmMetricsGet"], error, lambda: api.nvmlGpmMetricsGet(self._query[0]))
        self._older: Any = None
        self._newer: Any = None
        self._older_s = -inf
        self._older_unix_ns = 0
        self._query: tuple[Any, memoryview] = (None, memoryview(b""))
        self._next_query = self._query
        self._series: list[tuple[str, Series, float]] = []
        self._noted: set[str] = set()
        self.reason: str | None = "not_asked"

    def open(self, now_s: float, links: dict[int, tuple[str, str]]) -> bool:
        """Ask for support and make the samples. `links`: link metrics that no field gives. Raises GpuLost."""
        supported = self._support.read(now_s)
        if supported != 1:
            self._absent(self._support.reason or "not_supported")
            return False
        api, hw = self._api, {"hw.id": self._device.uuid, "hw.type": "gpu"}
        try:
            if self._older is None:
                self._older, self._newer = api.nvmlGpmSampleAlloc(), api.nvmlGpmSampleAlloc()
        except api.NVMLError as error:
            self._absent(reason_of(error.value))
            return False
        chosen = [(number, name, Series(name, hw), 0.01) for number, name in ACTIVITY.items()]
        for number, (link, direction) in links.items():
            name = "tailtrace.link.bandwidth"
            attributes = {**hw, "tailtrace.link": link, "network.io.direction": direction, "tailtrace.source": "gpm"}
            chosen.append((number, name, Series(name, attributes), _MIB))
        numbers = [number for number, _, _, _ in chosen]
        self._query = self._new_query(numbers, self._older, self._newer)
        self._next_query = self._new_query(numbers, self._newer, self._older)
        self._series = [(name, series, scale) for _, name, series, scale in chosen]
        self.reason = None
        return True

    def tick(self, now_s: float, points: list[Point], now_unix_ns: int) -> None:
        """Take a sample; where the former is old enough, append the activity between the two. Raises GpuLost."""
        if self.reason is not None:
            return
        elapsed = now_s - self._older_s
        if elapsed < SHORTEST_S:
            return
        if self._get.read(now_s) is None:
            if self._get.reason is not None:
                self._absent(self._get.reason, stop=False)
            return
        if elapsed <= _LONGEST_S:
            if self._evaluate.read(now_s) is not None:
                self._append(points, (self._older_unix_ns + now_unix_ns) // 2)
            elif self._evaluate.reason is not None:
                self._absent(self._evaluate.reason, stop=False)
        self._older, self._newer = self._newer, self._older
        self._query, self._next_query = self._next_query, self._query
        self._older_s, self._older_unix_ns = now_s, now_unix_ns

    def _new_query(self, numbers: list[int], older: Any, newer: Any) -> tuple[Any, memoryview]:
        """What is asked of two samples, and its answers as bytes. Kept: to write it anew costs more than the call."""
        api = self._api
        query = api.c_nvmlGpmMetricsGet_t()
        query.version = api.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(numbers)
        query.sample1, query.sample2 = older, newer
        for index, number in enumerate(numbers):
            query.metrics[index].metricId = number
        offset = type(query).metrics.offset
        return query, memoryview(query).cast("B")[offset : offset + len(numbers) * _METRIC.size]

    def _append(self, points: list[Point], middle_unix_ns: int) -> None:
        uuid, noted = self._device.uuid, self._noted
        answers = _METRIC.iter_unpack(self._query[1])
        for (name, series, scale), (code, value) in zip(self._series, answers, strict=True):
            if code or not isfinite(value):
                noted.add(name)
                self._absences.note(name, reason_of(code) if code else "no_data", uuid)
                continue
            if noted and name in noted:
                self._noted.discard(name)
                self._absences.clear(name, uuid)
            points.append(series.point(value * scale, middle_unix_ns))

    def _take(self) -> Any:
        if self._device.is_instance:
            return self._api.nvmlGpmMigSampleGet(self._device.parent_handle, self._device.instance, self._newer)
        return self._api.nvmlGpmSampleGet(self._device.handle, self._newer)

    def _absent(self, reason: str, *, stop: bool = True) -> None:
        if stop:
            self.reason = reason
        for name in ACTIVITY.values():
            self._noted.add(name)
            self._absences.note(name, reason, self._device.uuid)

    def close(self) -> None:
        """To be called before nvmlShutdown: samples are the driver's memory."""
        for sample in (self._older, self._newer):
            if sample is not None:
                try:
                    self._api.nvmlGpmSampleFree(sample)
                except self._api.NVMLError:
                    pass
        self._older = self._newer = None
        self.reason = "closed"

"""One GPU, or one MIG instance: what is read of it at each tier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.buffered import BufferedUtilization
from tailtrace.instrumentation.sampler.calls import OLD_DRIVER, Call, Meters
from tailtrace.instrumentation.sampler.cumulative import Cumulative, Step
from tailtrace.instrumentation.sampler.drops import Drops
from tailtrace.instrumentation.sampler.fields import FieldBatch
from tailtrace.instrumentation.sampler.gpm import NVLINK, PCIE, Gpm
from tailtrace.instrumentation.sampler.gpu_fields import (
    LATER_THROTTLE_FIELDS,
    MEMORY_TEMPERATURE_FIELD,
    NVLINK_FIELDS,
    PCIE_FIELDS,
    POWER_FIELD,
    TRUSTED_THROTTLE_DRIVER,
    Counters,
    gpu_fields,
)  # fmt: skip
from tailtrace.instrumentation.sampler.links import Links
from tailtrace.instrumentation.sampler.nvml import NOT_SUPPORTED, Device, Session
from tailtrace.instrumentation.sampler.processes_on_gpu import ProcessesOnGpu
from tailtrace.instrumentation.sampler.series import Series

WHOLE_GPU_ONLY: Final = ("hw.gpu.utilization", "hw.power", "hw.energy", "tailtrace.gpu.clock.sm", "tailtrace.link.*")
"""What a MIG instance has none of its own of; the driver tells it of the GPU, or under MIG of nothing."""
_MHZ: Final = 1_000_000
_SM_CLOCK, _MEM_CLOCK = 1, 2


class Reading:
    """A call that feeds metrics: their points when it succeeds, their absence when it does not."""

    __slots__ = ("_absences", "_call", "_hw_id", "_make", "_metrics", "_noted")

    def __init__(
        self,
        call: Call,
        metrics: tuple[str, ...],
        make: Callable[[Any, int], list[Point]],
        absences: Absences,
        hw_id: str,
    ) -> None:
        self._call, self._metrics, self._make, self._absences, self._hw_id = call, metrics, make, absences, hw_id
        self._noted: str | None = None

    def tick(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        call = self._call
        value = call.read(now_s)
        if value is not None:
            points += self._make(value, unix_ns)
            if self._noted is None:
                return
        if call.reason != self._noted and (value is not None or call.reason is not None):
            self._noted = call.reason
            for metric in self._metrics:
                if call.reason is None:
                    self._absences.clear(metric, self._hw_id)
                else:
                    self._absences.note(metric, call.reason, self._hw_id)


class Gpu:
    """`rare`, then `slow` and `fast`, append points; each raises GpuLost. Made anew for each NVML session."""

    def __init__(
        self, session: Session, device: Device, meters: Meters, absences: Absences, drops: Drops, counters: Counters,
        *, interval_s: float,
    ) -> None:  # fmt: skip
        self.device = device
        self._session, self._api, self._handle = session, session.api, device.handle
        self._meters, self._absences, self._drops = meters, absences, drops
        self._counters, self._interval_s = counters, interval_s
        self._hw = {"hw.id": device.uuid, "hw.type": "gpu"}
        self.gpm = Gpm(session.api, device, meters, absences)
        self._batch: FieldBatch | None = None
        self._gpm_asked = False
        self._ecc = {"ecc_corrected": Cumulative(), "ecc_uncorrected": Cumulative()}
        self.links = Links(session, device, meters, absences, drops)
        self._processes = ProcessesOnGpu(session, device, meters, absences)
        whole = not device.is_instance
        self._fast = self._fast_readings() if whole else []
        self._slow = [self._memory(), *(self._slow_readings() if whole else [])]
        self._buffered = BufferedUtilization(session.api, device, meters, drops) if whole else None
        self._rates = self._utilization_rates() if whole else None
        self._rare = self._rare_readings() if whole else []
        if not whole:
            for metric in WHOLE_GPU_ONLY:
                absences.note(metric, "whole_gpu_only", device.uuid)

    @property
    def pcie_by_call(self) -> bool:
        """Neither field nor GPM gives PCIe traffic: only the call that blocks for 20 ms does."""
        return (
            not self.device.is_instance
            and self._batch is not None
            and not self._batch.readable(197)
            and self._gpm_asked
            and self.gpm.reason is not None
        )

    def fast(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        if self._batch is not None:
            self._batch.tick(now_s, unix_ns, points)
            if not self._gpm_asked:
                self._ask_gpm(now_s)
        self.gpm.tick(now_s, points, unix_ns)
        for reading in self._fast:
            reading.tick(now_s, unix_ns, points)

    def slow(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        for reading in self._slow:
            reading.tick(now_s, unix_ns, points)
        if self._rates is not None and self._buffered is not None:
            # Only a GPU without GPM needs the finer view: several readings a second cost as many points.
            finer = self._gpm_asked and self.gpm.reason is not None
            if not (finer and self._buffered.tick(now_s, unix_ns, points)):
                self._rates.tick(now_s, unix_ns, points)
        if not self.device.is_instance:
            self.links.slow(now_s, unix_ns, points)
            if self._batch is not None and not self._batch.readable(POWER_FIELD):
                self._power.tick(now_s, unix_ns, points)

    def rare(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        """Must run before the first `fast`: it finds what the links can carry."""
        device = self.device
        status = {
            **self._hw, "hw.state": "ok", "hw.name": device.name, "hw.vendor": "NVIDIA",
            "hw.driver_version": self._session.driver, **({"hw.parent": device.parent} if device.parent else {}),
            **({"tailtrace.virtualization": device.virtualization} if device.virtualization else {}),
        }  # fmt: skip
        points.append(Series("hw.status", status).point(1, unix_ns))
        for reading in self._rare:
            reading.tick(now_s, unix_ns, points)
        self._processes.tick(now_s, unix_ns, points)
        if device.is_instance:
            if not self._gpm_asked:
                self._ask_gpm(now_s)
            return
        self.links.rare(now_s, unix_ns, points)
        if self._batch is None:
            self._batch = self._new_batch()

    def close(self) -> None:
        self.gpm.close()

    def _new_batch(self) -> FieldBatch:
        driver = self._session.driver_major
        if driver < TRUSTED_THROTTLE_DRIVER:
            for reason in LATER_THROTTLE_FIELDS.values():
                self._absences.note(f"tailtrace.gpu.throttle/{reason}", "old_driver", self.device.uuid)
        fields = gpu_fields(
            self.device.uuid, driver, self._counters,
            pcie_per_s=self.links.pcie_per_s, nvlink_per_s=self.links.nvlink_per_s, interval_s=self._interval_s,
        )  # fmt: skip
        return FieldBatch(
            self._api, self._handle, self.device.uuid, list(fields), self._meters, self._absences, self._drops
        )

    def _ask_gpm(self, now_s: float) -> None:
        self._gpm_asked = True
        wanted: dict[int, tuple[str, str]] = {}
        if self._batch is not None:
            wanted |= PCIE if not any(map(self._batch.readable, PCIE_FIELDS)) else {}
            wanted |= NVLINK if self.links.nvlink_per_s and not any(map(self._batch.readable, NVLINK_FIELDS)) else {}
        self.gpm.open(now_s, wanted)

    def _reading(
        self, name: str, run: Callable[[], Any], metrics: tuple[str, ...], make: Callable[[Any, int], list[Point]],
        fallback: Callable[[], Any] | None = None, fallback_on: frozenset[int] = OLD_DRIVER,
    ) -> Reading:  # fmt: skip
        call = Call(self._meters[name], self._api.NVMLError, run, fallback, fallback_on=fallback_on)
        return Reading(call, metrics, make, self._absences, self.device.uuid)

    def _gauge(
        self, name: str, run: Callable[[], Any], metric: str, scale: float = 1,
        fallback: Callable[[], Any] | None = None, **attributes: str,
    ) -> Reading:  # fmt: skip
        series = Series(metric, {**self._hw, **{f"tailtrace.{key}": value for key, value in attributes.items()}})
        return self._reading(name, run, (metric,), lambda value, at: [series.point(value * scale, at)], fallback)

    def _fast_readings(self) -> list[Reading]:
        api, handle = self._api, self._handle
        reasons = getattr(api, "nvmlDeviceGetCurrentClocksEventReasons", api.nvmlDeviceGetCurrentClocksThrottleReasons)
        return [
            self._gauge("nvmlDeviceGetClockInfo", lambda: api.nvmlDeviceGetClockInfo(handle, _SM_CLOCK),
                        "tailtrace.gpu.clock.sm", _MHZ),
            self._gauge("nvmlDeviceGetClockInfo", lambda: api.nvmlDeviceGetClockInfo(handle, _MEM_CLOCK),
                        "tailtrace.gpu.clock.memory", _MHZ),
            self._gauge("nvmlDeviceGetCurrentClocksEventReasons", lambda: reasons(handle),
                        "tailtrace.gpu.clock_events",
                        fallback=lambda: api.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        ]  # fmt: skip

    def _slow_readings(self) -> list[Reading]:
        api, handle = self._api, self._handle
        temperature = getattr(api, "nvmlDeviceGetTemperatureV", api.nvmlDeviceGetTemperature)
        memory_temperature = FieldBatch(
            api, handle, self.device.uuid, [_temperature_field(self._hw)], self._meters, self._absences, self._drops
        )
        self._power = self._gauge("nvmlDeviceGetPowerUsage", lambda: api.nvmlDeviceGetPowerUsage(handle), "hw.power",
                                  1e-3, source="power_usage")  # fmt: skip
        return [
            self._gauge("nvmlDeviceGetTemperatureV", lambda: temperature(handle, 0), "hw.temperature",
                        fallback=lambda: api.nvmlDeviceGetTemperature(handle, 0)),
            _Batched(memory_temperature),
        ]  # fmt: skip

    def _utilization_rates(self) -> Reading:
        api, handle = self._api, self._handle
        attributes = {**self._hw, "tailtrace.source": "rates"}
        busy, memory = Series("hw.gpu.utilization", attributes), Series("tailtrace.gpu.memory_busy", attributes)
        return self._reading(
            "nvmlDeviceGetUtilizationRates", lambda: api.nvmlDeviceGetUtilizationRates(handle),
            ("hw.gpu.utilization", "tailtrace.gpu.memory_busy"),
            lambda value, at: [busy.point(value.gpu / 100, at), memory.point(value.memory / 100, at)],
        )  # fmt: skip

    def _rare_readings(self) -> list[Reading]:
        api, handle = self._api, self._handle
        rows = {
            reason: Series("tailtrace.gpu.remapped_rows", {**self._hw, "tailtrace.reason": reason})
            for reason in ("corrected", "uncorrected")
        }
        return [
            self._gauge("nvmlDeviceGetEnforcedPowerLimit", lambda: api.nvmlDeviceGetEnforcedPowerLimit(handle),
                        "tailtrace.gpu.power.limit", 1e-3),
            self._gauge("nvmlDeviceGetMaxClockInfo", lambda: api.nvmlDeviceGetMaxClockInfo(handle, _SM_CLOCK),
                        "tailtrace.gpu.clock.sm.max", _MHZ),
            self._reading("nvmlDeviceGetRemappedRows", lambda: api.nvmlDeviceGetRemappedRows(handle),
                          ("tailtrace.gpu.remapped_rows",),
                          lambda value, at: [rows["corrected"].point(value[0], at),
                                             rows["uncorrected"].point(value[1], at)]),
            *(self._ecc_reading(kind, name) for kind, name in enumerate(self._ecc)),
        ]  # fmt: skip

    def _ecc_reading(self, kind: int, name: str) -> Reading:
        api, handle, counter = self._api, self._handle, self._ecc[name]
        series = Series("hw.errors", {**self._hw, "error.type": name})

        def make(value: int, at: int) -> list[Point]:
            first = counter.update(value, at) in (Step.FIRST, Step.RESET)
            # Errors that were there before the first look are errors all the same: an integral count starts at 0.
            return [] if first else [series.point(counter.total, at, counter.start_ns)]

        return self._reading(
            "nvmlDeviceGetTotalEccErrors", lambda: api.nvmlDeviceGetTotalEccErrors(handle, kind, 0),
            (f"hw.errors/{name}",), make,
        )  # fmt: skip

    def _memory(self) -> Reading:
        api, handle = self._api, self._handle
        names = ("hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.gpu.memory.utilization")
        used, limit, share = (Series(name, self._hw) for name in names)
        reserved = Series("tailtrace.gpu.memory.reserved", self._hw)

        def make(value: Any, at: int) -> list[Point]:
            points = [used.point(value.used, at), limit.point(value.total, at)]
            if value.total:
                points.append(share.point(value.used / value.total, at))
            if hasattr(value, "reserved"):
                points.append(reserved.point(value.reserved, at))
            else:
                self._absences.note("tailtrace.gpu.memory.reserved", "no_memory_v2", self.device.uuid)
            return points

        version = getattr(api, "nvmlMemory_v2", 0x02000028)
        return self._reading(
            "nvmlDeviceGetMemoryInfo", lambda: api.nvmlDeviceGetMemoryInfo(handle, version=version),
            (*names, "tailtrace.gpu.memory.reserved"), make,
            fallback=lambda: api.nvmlDeviceGetMemoryInfo(handle), fallback_on=OLD_DRIVER | {NOT_SUPPORTED},
        )  # fmt: skip


class _Batched(Reading):
    """A batch of fields of a slower tier, ticked like a reading."""

    __slots__ = ("_batch",)

    def __init__(self, batch: FieldBatch) -> None:
        self._batch = batch

    def tick(self, now_s: float, unix_ns: int, points: list[Point]) -> None:
        self._batch.tick(now_s, unix_ns, points)


def _temperature_field(hw: dict[str, str]) -> Any:
    from tailtrace.instrumentation.sampler.fields import Field

    name = "tailtrace.gpu.memory.temperature"
    return Field(MEMORY_TEMPERATURE_FIELD, Series(name, hw), name)

"""Utilisation as the driver kept it: a reading each 1/6 to 1 s, taken out of its ring buffer every few seconds.

The only view finer than a second where there is no GPM. A GPU that cannot give it is asked for its rates instead.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.calls import Call, Meters
from tailtrace.instrumentation.sampler.drops import Drops
from tailtrace.instrumentation.sampler.nvml import NOT_FOUND, Device
from tailtrace.instrumentation.sampler.series import Series

_KINDS: Final = {1: "hw.gpu.utilization", 2: "tailtrace.gpu.memory_busy"}
_UNSIGNED_INT: Final = 1
_TRUSTED_SKEW_US: Final = 60_000_000
_LONGEST_PERIOD_US: Final = 1_000_000
_Samples = list[tuple[int, int]]


class BufferedUtilization:
    """GPU and memory utilisation of one GPU since the last look."""

    def __init__(self, api: Any, device: Device, meters: Meters, drops: Drops) -> None:
        self._api, self._handle, self._drops = api, device.handle, drops
        hw = {"hw.id": device.uuid, "hw.type": "gpu", "tailtrace.source": "samples"}
        self._series = {kind: Series(name, hw) for kind, name in _KINDS.items()}
        self._last_us = dict.fromkeys(_KINDS, 0)
        meter = meters["nvmlDeviceGetSamples"]
        self._calls = {kind: Call(meter, api.NVMLError, partial(self._take, kind)) for kind in _KINDS}

    def tick(self, now_s: float, unix_ns: int, points: list[Point]) -> bool:
        """Append a point for each reading since the last tick; False where there was none, or the driver keeps none.

        The first look only says from when on. A reading's time is the middle of the period that it covers.
        """
        made: list[Point] = []
        for kind, call in self._calls.items():
            first = not self._last_us[kind]
            self._last_us[kind] = self._last_us[kind] or unix_ns // 1000
            samples: _Samples | None = call.read(now_s)
            if call.reason is not None:
                return False
            if first or not samples:
                continue
            if any(abs(at - unix_ns // 1000) > _TRUSTED_SKEW_US for at, _ in samples):
                self._drops.add("foreign_clock", len(samples))
                return False
            self._append(kind, samples, made)
        points += made
        return bool(made)

    def _append(self, kind: int, samples: _Samples, made: list[Point]) -> None:
        series = self._series[kind]
        for (before, _), (at, value) in pairwise([(self._last_us[kind], 0), *samples]):
            period = min(at - before, _LONGEST_PERIOD_US)
            made.append(series.point(value / 100, (at - period // 2) * 1000))
        self._last_us[kind] = samples[-1][0]

    def _take(self, kind: int) -> _Samples:
        """(microseconds, percent) in order of time, newer than the last."""
        last = self._last_us[kind]
        try:
            kept, samples = self._api.nvmlDeviceGetSamples(self._handle, kind, last)
        except self._api.NVMLError as error:
            if error.value == NOT_FOUND:  # nothing newer
                return []
            raise
        member = "uiVal" if kept == _UNSIGNED_INT else "ullVal"
        found = ((int(sample.timeStamp), int(getattr(sample.sampleValue, member))) for sample in samples)
        return sorted((at, value) for at, value in found if at > last)

"""A call into the driver: timed, its errors remembered, made rarer when it is slow."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.nvml import FUNCTION_NOT_FOUND, LOST_CODES, VERSION_MISMATCH, GpuLost, reason_of
from tailtrace.instrumentation.sampler.series import Series

SLOW_S: Final = 0.005
OLD_DRIVER: Final = frozenset({FUNCTION_NOT_FOUND, VERSION_MISMATCH})
_USUALLY_S: Final = 0.001
_WINDOW: Final = 20
_MOST_STRETCH: Final = 64
_RETRY_S: Final = {"not_supported": 3600.0, "old_driver": 3600.0, "unknown_to_driver": 3600.0, "no_permission": 60.0}
_RETRY_OTHER_S: Final = 10.0


class Meter:
    """What one kind of call costs, over all GPUs. `stretch` says every how manieth time it is made."""

    __slots__ = ("_durations", "count", "name", "stretch", "worst_s")

    def __init__(self, name: str) -> None:
        self.name = name
        self.stretch = 1
        self.count = 0
        self.worst_s = 0.0
        self._durations: list[float] = []

    def add(self, duration_s: float) -> None:
        self.count += 1
        durations = self._durations
        durations.append(duration_s)
        if len(durations) >= _WINDOW:
            # A slow call is slow mostly; one that only waited for a CPU on a busy host has a quick median.
            ordered = sorted(durations)
            p95 = ordered[math.ceil(0.95 * _WINDOW) - 1]
            if p95 > SLOW_S and ordered[_WINDOW // 2] > _USUALLY_S:
                self.stretch = min(self.stretch * 2, _MOST_STRETCH)
            elif p95 < SLOW_S / 2 and self.stretch > 1:
                self.stretch //= 2
            self.worst_s = max(self.worst_s, p95)
            durations.clear()

    def take_p95(self) -> float | None:
        """The highest 95th percentile of the windows since the last call, or what a part of one shows."""
        worst, self.worst_s = self.worst_s, 0.0
        if worst == 0.0 and self._durations:
            ordered = sorted(self._durations)
            worst = ordered[math.ceil(0.95 * len(ordered)) - 1]
        return worst or None


class Meters:
    """One meter a call name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Meter] = {}
        self.start_unix_ns = 0

    def __getitem__(self, name: str) -> Meter:
        meter = self.by_name.get(name)
        if meter is None:
            meter = self.by_name[name] = Meter(name)
        return meter

    def points(self, time_unix_ns: int) -> list[Point]:
        made = []
        for meter in list(self.by_name.values()):
            attributes = {"tailtrace.call": meter.name}
            p95 = meter.take_p95()
            if p95 is not None:
                made.append(Series("tailtrace.sampler.call.duration", attributes).point(p95, time_unix_ns))
            made.append(
                Series("tailtrace.sampler.calls", attributes).point(meter.count, time_unix_ns, self.start_unix_ns)
            )
        return made


class Call:
    """`read` gives the value, or None: then `reason` says why, or is None where it was only left out this time."""

    __slots__ = ("_error", "_fallback", "_fallback_on", "_left_out", "_meter", "_retry_at", "_run", "reason")

    def __init__(
        self, meter: Meter, error: type[Exception], run: Callable[[], Any], fallback: Callable[[], Any] | None = None,
        *, fallback_on: frozenset[int] = OLD_DRIVER,
    ) -> None:  # fmt: skip
        """`fallback` takes over for good where the call answers with one of `fallback_on`: an old driver's codes."""
        self._meter, self._error, self._run, self._fallback = meter, error, run, fallback
        self._fallback_on = fallback_on
        self._retry_at = 0.0
        self._left_out = 0
        self.reason: str | None = None

    def read(self, now_s: float) -> Any | None:
        """`now_s`: monotonic seconds. Raises GpuLost."""
        if self.reason is not None and now_s < self._retry_at:
            return None
        meter = self._meter
        if meter.stretch > 1:
            self._left_out += 1
            if self._left_out < meter.stretch:
                return None
            self._left_out = 0
        started = perf_counter()
        try:
            value = self._run()
        except self._error as error:
            meter.add(perf_counter() - started)
            return self._failed(getattr(error, "value", -1), now_s)
        except (AttributeError, TypeError, ValueError, OSError):
            return self._failed(-1, now_s)
        meter.add(perf_counter() - started)
        self.reason = None
        return value

    def _failed(self, code: int, now_s: float) -> Any | None:
        if code in LOST_CODES:
            raise GpuLost(code)
        if code in self._fallback_on and self._fallback is not None:
            self._run, self._fallback = self._fallback, None
            return self.read(now_s)
        self.reason = "binding_error" if code == -1 else reason_of(code)
        self._retry_at = now_s + _RETRY_S.get(self.reason, _RETRY_OTHER_S)
        return None

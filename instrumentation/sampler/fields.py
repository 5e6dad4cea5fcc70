"""Field values: one call that reads many counters of a GPU at once, each with its own error, type and time stamp."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.calls import Call, Meters
from tailtrace.instrumentation.sampler.cumulative import ADVANCED, Cumulative, Step
from tailtrace.instrumentation.sampler.drops import Drops
from tailtrace.instrumentation.sampler.nvml import LOST_CODES, GpuLost, reason_of
from tailtrace.instrumentation.sampler.series import Series

ALL_LINKS: Final = 0xFFFFFFFF
_ENTRY: Final = Struct("=8xq8xIIQ")
"""Of nvmlFieldValue_t: time stamp, type, error, and the eight bytes of the value."""
_DOUBLE: Final = Struct("=d")
_BITS: Final = Struct("=Q")
_UNSIGNED_INT, _UNSIGNED_LONG_LONG, _SIGNED_LONG, _SIGNED_INT = 1, 3, 4, 5
_REMEMBERED: Final = frozenset({2, 3, 13})
_RETRY_S: Final = 3600.0
_TRUSTED_SKEW_US: Final = 10_000_000
SUM_EVERY_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Field:
    """One entry of the batch. `scale` turns its unit into the series' unit; `rate` is the same per second.

    A sum that stands still, or whose rate is sent at each reading, is sent once in `every_ns` and loses nothing by it:
    where it starts to grow again, the last reading before that is sent too.
    """

    number: int
    series: Series
    metric: str
    scope: int = 0
    scale: float = 1
    cumulative: Cumulative | None = None
    rate: Series | None = None
    rate_metric: str = ""
    most_per_s: float = 0.0
    longest_ns: int = 10_000_000_000
    reason: str | None = None
    seen: bool = field(default=False)
    every_ns: int = SUM_EVERY_NS
    sent_ns: int = 0
    held_ns: int = 0


def number_of(kind: int, bits: int) -> int | float:
    """The value of an entry from its type and its eight bytes; narrow types leave the upper bytes alone."""
    if kind == 0:
        return float(_DOUBLE.unpack(_BITS.pack(bits))[0])
    if kind == _UNSIGNED_INT:
        return bits & 0xFFFFFFFF
    if kind == _SIGNED_INT:
        low = bits & 0xFFFFFFFF
        return low - (1 << 32) if low >> 31 else low
    if kind == _SIGNED_LONG:
        return bits - (1 << 64) if bits >> 63 else bits
    return bits & 0xFFFF if kind == 6 else bits


class FieldBatch:
    """Reads the fields that the driver knows; those it does not are left out for an hour."""

    def __init__(
        self,
        api: Any,
        handle: Any,
        hw_id: str,
        fields: Sequence[Field],
        meters: Meters,
        absences: Absences,
        drops: Drops,
    ) -> None:
        self._api, self._handle, self._hw_id = api, handle, hw_id
        self._absences, self._drops = absences, drops
        self._all = list(fields)
        self._meter = meters["nvmlDeviceGetFieldValues"]
        self._call = Call(self._meter, api.NVMLError, self._read)
        self._set_active(self._all)
        self._retry_at = 0.0

    def _set_active(self, fields: Iterable[Field]) -> None:
        self._active = list(fields)
        self._ids = [(item.number, item.scope) for item in self._active]
        self._values: Any = (self._api.c_nvmlFieldValue_t * len(self._ids))()
        for value, (number, scope) in zip(self._values, self._ids, strict=True):
            value.fieldId, value.scopeId = number, scope
        self._bytes = memoryview(self._values).cast("B")

    def _read(self) -> memoryview:
        """The entries as bytes. The request is kept from tick to tick: to write it anew costs more than the call."""
        function = getattr(self._api, "_nvmlGetFunctionPointer", None)
        if function is None:
            return memoryview(self._api.nvmlDeviceGetFieldValues(self._handle, self._ids)).cast("B")
        code = function("nvmlDeviceGetFieldValues")(self._handle, len(self._ids), self._values)
        if code:
            raise self._api.NVMLError(code)
        return self._bytes

    def readable(self, number: int) -> bool:
        """Whether this field gave a value at its last reading."""
        return any(item.number == number and item.seen and item.reason is None for item in self._all)

    def tick(self, now_s: float, tick_unix_ns: int, points: list[Point]) -> None:
        """Read, and append what is new. Raises GpuLost."""
        if len(self._active) < len(self._all) and now_s >= self._retry_at:
            self._set_active(self._all)
            self._retry_at = now_s + _RETRY_S
        if not self._ids:
            return
        values = self._call.read(now_s)
        if values is None:
            if self._call.reason is not None:
                for item in self._active:
                    self._absent(item, self._call.reason)
            return
        forgotten = False
        earliest_us = tick_unix_ns // 1000 - _TRUSTED_SKEW_US
        latest_us = earliest_us + 2 * _TRUSTED_SKEW_US
        for item, (stamp_us, kind, code, bits) in zip(self._active, _ENTRY.iter_unpack(values), strict=True):
            if code:
                if code in LOST_CODES:
                    raise GpuLost(code)
                self._absent(item, reason_of(code))
                forgotten = forgotten or code in _REMEMBERED
                continue
            if item.reason is not None or not item.seen:
                item.reason, item.seen = None, True
                self._absences.clear(item.metric, self._hw_id)
            stamp = stamp_us * 1000 if earliest_us <= stamp_us <= latest_us else tick_unix_ns
            value: int | float = bits if kind == _UNSIGNED_LONG_LONG else number_of(kind, bits)
            counter = item.cumulative
            if counter is None:
                points.append(item.series.point(value * item.scale, stamp))
            else:
                self._advance(item, counter, int(value), stamp, 32 if kind == _UNSIGNED_INT else 64, points)
        if forgotten:
            self._set_active(item for item in self._active if item.reason is None)
            self._retry_at = now_s + _RETRY_S

    def _advance(
        self, item: Field, counter: Cumulative, value: int, stamp: int, bits: int, points: list[Point]
    ) -> None:
        step = counter.update(value, stamp, bits, item.most_per_s)
        if step is ADVANCED:
            scale, rate, delta = item.scale, item.rate, counter.delta
            if stamp - item.sent_ns >= item.every_ns or (delta and rate is None):
                if item.held_ns and delta and rate is None:
                    before = (counter.total - delta) * scale
                    points.append(item.series.point(before, item.held_ns, counter.start_ns))
                points.append(item.series.point(counter.total * scale, stamp, counter.start_ns))
                item.sent_ns, item.held_ns = stamp, 0
            else:
                item.held_ns = stamp
            if rate is not None and counter.elapsed_ns <= item.longest_ns:
                per_s = delta * scale * 1e9 / counter.elapsed_ns
                points.append(rate.point(per_s, stamp - counter.elapsed_ns // 2))
        elif step is Step.IMPLAUSIBLE or step is Step.RESET:
            item.held_ns = 0
            self._drops.add(step.value)

    def _absent(self, item: Field, reason: str) -> None:
        if item.reason != reason:
            item.reason = reason
            self._absences.note(item.metric, reason, self._hw_id)

"""Counters of the host that are sent since the sampler's first look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.cumulative import ADVANCED, Cumulative
from tailtrace.instrumentation.sampler.series import Series


class Count:
    """One cumulative series; the first reading only says from where to count."""

    __slots__ = ("_counter", "_scale", "_series")

    def __init__(self, metric: str, attributes: Mapping[str, Any] | None = None, scale: int = 1) -> None:
        self._series = Series(metric, attributes)
        self._scale = scale
        self._counter = Cumulative()

    def add(self, raw: int, unix_ns: int, points: list[Point]) -> None:
        counter = self._counter
        if counter.update(raw, unix_ns) is ADVANCED:
            points.append(self._series.point(counter.total * self._scale, unix_ns, counter.start_ns))

"""One time series: a metric of the catalogue with its attributes said once, and the points made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailtrace.instrumentation.otlp import Labels, Point
from tailtrace.instrumentation.sampler.catalogue import BY_NAME


class Series:
    """Makes points. Raises KeyError for a metric or an attribute that the catalogue does not know."""

    __slots__ = ("_attributes", "_kind", "_name", "_unit")

    def __init__(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        metric = BY_NAME[name]
        self._attributes = Labels(attributes or {})
        foreign = self._attributes.keys() - set(metric.attributes)
        if foreign:
            raise KeyError(f"{name} has no attribute {', '.join(sorted(foreign))}")
        self._name, self._unit, self._kind = name, metric.unit, metric.kind

    def point(self, value: int | float, time_unix_ns: int, start_unix_ns: int = 0) -> Point:
        return Point(self._name, self._unit, self._kind, value, time_unix_ns, self._attributes, start_unix_ns)

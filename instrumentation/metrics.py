"""Points on their way to the receiver: the exporter of spans, taught to carry metrics."""

from __future__ import annotations

from typing import Any

from tailtrace.instrumentation.exporter import Batch, Exporter
from tailtrace.instrumentation.otlp import Point, encode_metrics
from tailtrace.instrumentation.settings import Settings
from tailtrace.instrumentation.transport import Transport, open_transport

_MOST_POINTS = 4096


class MetricsExporter(Exporter):
    """`put` takes a list of points. Buffering, retries, losses and shutdown are the exporter's."""

    what = "metric batches"

    def __init__(self, settings: Settings, resource: dict[str, Any], transport: Transport | None = None) -> None:
        super().__init__(settings, resource, transport or open_transport(settings, "metrics"))
        self._attributes = resource

    def _encode_all(self) -> None:
        while True:
            batches: list[list[Point]] = [batch for batch, _ in self._buffer.take(64)]
            if not batches:
                return
            points = [point for batch in batches for point in batch]
            for at in range(0, len(points), _MOST_POINTS):
                body = encode_metrics(self._attributes, points[at : at + _MOST_POINTS])
                self._keep(Batch({"": body}, len(batches), len(body)))

    def _body(self, batch: Batch) -> bytes:
        return batch.scopes[""]

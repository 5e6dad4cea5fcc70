"""Points on their way to the receiver: the exporter of spans, taught to carry metrics."""

from __future__ import annotations

import logging
from typing import Any

from tailtrace.instrumentation.exporter import Batch, Exporter
from tailtrace.instrumentation.otlp import EncodedPoints, Point, encode_points, join_metrics
from tailtrace.instrumentation.settings import Settings
from tailtrace.instrumentation.transport import Transport, open_transport

log = logging.getLogger("tailtrace")

_MOST_BATCHES = 32


class MetricsExporter(Exporter):
    """`put` takes a list of points. Buffering, retries, losses and shutdown are the exporter's."""

    what = "metric batches"

    def __init__(self, settings: Settings, resource: dict[str, Any], transport: Transport | None = None) -> None:
        super().__init__(settings, resource, transport or open_transport(settings, "metrics"))
        self._attributes = resource
        self.put = self._encode

    def _encode(self, item: list[Point]) -> None:
        """Encoded by who made them: what they hold is still in the CPU's caches, and bytes are all that is kept."""
        try:
            self._buffer.put(encode_points(item))
        except Exception:
            self.losses.add("unencodable", 1)
            if self._may_log():
                log.exception("tailtrace: points could not be encoded")

    def _encode_all(self) -> None:
        while batches := self._buffer.take(_MOST_BATCHES):
            parts: list[EncodedPoints] = [part for part, _ in batches]
            body = join_metrics(self._attributes, parts)
            self._keep(Batch({"": body}, len(parts), len(body)))

    def _body(self, batch: Batch) -> bytes:
        return batch.scopes[""]

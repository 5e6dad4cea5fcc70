"""Spans that the dashboard's tests draw."""

from __future__ import annotations

from typing import Any

from seeding import T0

from tailtrace.instrumentation.otlp import SpanData

MS = 1_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"
HOSTILE = '<img src=x onerror="window.hacked=1">{{constructor}}'

Spans = list[tuple[int, int, str, float, float, dict[str, Any]]]


def spans_of(trace: str, spans: Spans) -> list[SpanData]:
    """(number, parent, name, start ms, end ms, attributes) as spans."""
    return [
        SpanData(
            trace_id=bytes.fromhex(trace),
            span_id=number.to_bytes(8, "big"),
            parent_span_id=parent.to_bytes(8, "big") if parent else b"",
            name=name,
            kind=attributes.pop("kind", 1),
            start_unix_ns=T0 + round(start * MS),
            end_unix_ns=T0 + round(end * MS),
            attributes=attributes,
        )
        for number, parent, name, start, end, attributes in spans
    ]

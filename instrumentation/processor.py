"""`TailtraceSpanProcessor`: sends the spans of an existing OpenTelemetry provider through our exporter."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from tailtrace.instrumentation import record, runtime
from tailtrace.instrumentation.otlp import STATUS_ERROR, STATUS_OK, STATUS_UNSET, SpanData

_STATUS = {"UNSET": STATUS_UNSET, "OK": STATUS_OK, "ERROR": STATUS_ERROR}


class ForeignSpan(SpanData):
    """A span of another library, sent under that library's scope."""

    __slots__ = ("scope",)

    scope: str


class TailtraceSpanProcessor(SpanProcessor):
    """`provider.add_span_processor(TailtraceSpanProcessor())`, after `instrument()`. Never blocks."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is done before a span has ended."""

    def on_end(self, span: ReadableSpan) -> None:
        if runtime.active is not None and span.context is not None and span.context.trace_flags.sampled:
            try:
                record.submit(convert(span))
            except Exception:
                record.count_loss("unencodable", 1)

    def shutdown(self) -> None:
        """The exporter belongs to `instrument()`, which ends it."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return runtime.flush(timeout_millis / 1000)


def convert(span: ReadableSpan) -> ForeignSpan:
    """The same span as plain data."""
    context, parent = span.context, span.parent
    assert context is not None
    data = ForeignSpan(
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        parent.span_id.to_bytes(8, "big") if parent is not None else b"",
        span.name,
        span.kind.value + 1,
        span.start_time or 0,
        span.end_time or 0,
        dict(span.attributes or {}),
        _STATUS[span.status.status_code.name],
        span.status.description or "",
        [(link.context.trace_id.to_bytes(16, "big"), link.context.span_id.to_bytes(8, "big")) for link in span.links],
        [(event.timestamp, event.name, dict(event.attributes or {})) for event in span.events],
        context.trace_state.to_header() if context.trace_state else "",
    )
    data.scope = span.instrumentation_scope.name if span.instrumentation_scope else "opentelemetry"
    return data

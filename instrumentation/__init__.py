"""Tailtrace's client: what runs inside a user's service.

    from tailtrace.instrumentation import instrument, wrap_gateway, stage

    instrument(service_name="gateway")
    app = wrap_gateway(app)

Imports the standard library and opentelemetry-api only. Nothing here raises into the application or blocks a request.
"""

from __future__ import annotations

from tailtrace.instrumentation.client import wrap_client
from tailtrace.instrumentation.context import bind, current_request, extract, inject, joined, wrap_executor
from tailtrace.instrumentation.gateway import wrap_gateway
from tailtrace.instrumentation.record import Record
from tailtrace.instrumentation.runner import wrap_model_runner
from tailtrace.instrumentation.runtime import describe, flush, instrument, losses, shutdown
from tailtrace.instrumentation.scheduler import wrap_scheduler
from tailtrace.instrumentation.stage import mark, request, stage, stage_from, staged
from tailtrace.instrumentation.steps import record_step
from tailtrace.instrumentation.streams import stream
from tailtrace.instrumentation.tokenizer import wrap_tokenizer

__all__ = [
    "Record", "bind", "current_request", "describe", "extract", "flush", "inject", "instrument", "joined", "losses",
    "mark", "record_step", "request", "shutdown", "stage", "stage_from", "staged", "stream", "wrap_client",
    "wrap_executor", "wrap_gateway", "wrap_model_runner", "wrap_scheduler", "wrap_tokenizer",
]  # fmt: skip

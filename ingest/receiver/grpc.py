"""OTLP over gRPC: Export of traces, metrics and logs, on the very bytes received."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from tailtrace.errors import Overloaded, Rejected, TooLarge
from tailtrace.ingest.receiver.answers import rpc_status, success
from tailtrace.ingest.receiver.checks import warm_up
from tailtrace.ingest.receiver.counters import Counters
from tailtrace.ingest.receiver.intake import Intake, Signal, Sink
from tailtrace.ingest.receiver.limits import Limits
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.tokens import Tokens

_log = logging.getLogger(__name__)

_SERVICES: Final[dict[Signal, str]] = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}


def create_grpc_server(pipeline: Sink, settings: ServerSettings, counters: Counters) -> grpc.aio.Server:
    """A server without a port: call `add_insecure_port(address)` and `await start()` in the loop this is called in."""
    warm_up()
    limits = Limits.of(settings)
    intake = Intake(pipeline, limits, counters)
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", limits.body_bytes),
            ("grpc.so_reuseport", 0),  # a second receiver on the port must fail, not share it in silence
        )
    )
    tokens = Tokens(settings)
    for signal, service in _SERVICES.items():
        # Without a deserializer the handler gets the bytes, so the body is decoded once: by the store.
        method = grpc.unary_unary_rpc_method_handler(_exporter(intake, signal, tokens))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
    return server


def _exporter(intake: Intake, signal: Signal, tokens: Tokens) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def export(body: bytes, context: Any) -> bytes:
        code, reason, retry_after_s = (
            grpc.StatusCode.UNAUTHENTICATED,
            "metadata 'authorization: Bearer TOKEN' is wanted",
            0,
        )
        try:
            if _authorized(context, tokens):
                with intake.receiving() as hold:
                    hold(len(body))
                    return success(signal, await intake.accept(signal, body), json=False)
        except Overloaded as error:
            code, reason, retry_after_s = grpc.StatusCode.UNAVAILABLE, str(error), error.retry_after_s
        except TooLarge as error:
            code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        except Rejected as error:
            code, reason = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except Exception:
            _log.exception("an OTLP export failed")
            code, reason = grpc.StatusCode.INTERNAL, "the receiver failed on this body; its log says why"
        intake.counters.refused(signal, code.name)
        details = rpc_status(code.value[0], reason, retry_after_s)
        await context.abort(code, reason, (("grpc-status-details-bin", details),))
        raise AssertionError("abort raises")

    return export


def _authorized(context: Any, tokens: Tokens) -> bool:
    if not tokens.required():
        return True
    return tokens.header_allows(str(dict(context.invocation_metadata()).get("authorization", "")), "ingest")

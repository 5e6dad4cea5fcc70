"""OTLP over gRPC against a real server in this process: bodies, headers, partial success, refusals, wrong ports."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailtrace.instrumentation.otlp import SpanData, encode_traces
from tailtrace.instrumentation.settings import Settings
from tailtrace.instrumentation.transport import GrpcTransport, open_transport

grpc = pytest.importorskip("grpc")

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
BODY = encode_traces({"service.name": "gw"}, [SpanData(b"t" * 16, b"s" * 8, b"", "chat", 2, 1, 2)])


class Collector(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Takes what comes, answers `answer`, or refuses with `code`."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.metadata: dict[str, str] = {}
        self.answer = b""
        self.code: Any = None

    def service(self, details: Any) -> Any:
        if details.method != TRACES:
            return None
        self.metadata = dict(details.invocation_metadata)

        def export(body: bytes, context: Any) -> bytes:
            if self.code is not None:
                context.abort(self.code, "not now")
            self.bodies.append(body)
            return self.answer

        return grpc.unary_unary_rpc_method_handler(export)


@pytest.fixture
def collector() -> Iterator[tuple[Collector, int]]:
    handler = Collector()
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, port
    server.stop(0).wait()


def transport(port: int, **settings: Any) -> GrpcTransport:
    made = open_transport(Settings(protocol="grpc", endpoint=f"http://127.0.0.1:{port}", **settings))
    assert isinstance(made, GrpcTransport)
    return made


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_spans_and_headers_arrive(collector: tuple[Collector, int], compression: str) -> None:
    handler, port = collector
    sender = transport(port, compression=compression, headers={"Authorization": "Bearer x"})
    answer = sender.send(BODY)
    assert answer.ok
    assert answer.rejected == 0
    request = ExportTraceServiceRequest.FromString(handler.bodies[0])
    assert request.resource_spans[0].scope_spans[0].spans[0].name == "chat"
    assert handler.metadata["authorization"] == "Bearer x"
    sender.abort()


def test_partial_success_is_counted(collector: tuple[Collector, int]) -> None:
    handler, port = collector
    handler.answer = b"\x0a\x02\x08\x07"
    sender = transport(port)
    assert sender.send(BODY).rejected == 7
    sender.abort()


@pytest.mark.parametrize(("code", "retry"), [("UNAVAILABLE", True), ("UNAUTHENTICATED", False), ("INTERNAL", False)])
def test_a_refusal_says_whether_to_try_again(collector: tuple[Collector, int], code: str, retry: bool) -> None:
    handler, port = collector
    handler.code = getattr(grpc.StatusCode, code)
    sender = transport(port)
    answer = sender.send(BODY)
    assert (answer.ok, answer.retry) == (False, retry)
    assert code in answer.reason
    assert "not now" in answer.reason
    handler.code = None
    assert sender.send(BODY).ok
    sender.abort()


def test_nobody_there_is_tried_again(collector: tuple[Collector, int]) -> None:
    _, port = collector
    sender = transport(port)
    assert sender.send(BODY).ok
    away = GrpcTransport(Settings(endpoint="http://127.0.0.1:9", timeout_s=5.0))
    answer = away.send(BODY)
    assert (answer.ok, answer.retry) == (False, True)
    away.abort()
    sender.abort()

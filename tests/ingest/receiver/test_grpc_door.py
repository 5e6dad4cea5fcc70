"""OTLP/gRPC as a client sees it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from otlp_samples import FakePipeline, metric_request, rpc_status, span, trace_request

from tailtrace.errors import Overloaded
from tailtrace.ingest.receiver import Counters, create_grpc_server
from tailtrace.ingest.settings import ServerSettings

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"

Export = Callable[..., Awaitable[bytes]]


def good() -> bytes:
    return trace_request(span(now=time.time_ns())).SerializeToString()


class Door:
    """A server on a free port, and its counters."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        self.pipeline = FakePipeline()
        self.counters = Counters()
        self._settings = ServerSettings(data=tmp_path, **settings)

    def call(self, body: bytes, path: str = TRACES, **options: Any) -> bytes:
        async def scenario() -> bytes:
            server = create_grpc_server(self.pipeline, self._settings, self.counters)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            try:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    answer: bytes = await channel.unary_unary(path)(body, timeout=20, **options)
                    return answer
            finally:
                await server.stop(None)

        return asyncio.run(scenario())

    def refused(self, body: bytes, path: str = TRACES, **options: Any) -> Any:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            self.call(body, path, **options)
        return caught.value


def test_export_is_handed_on_as_received(tmp_path: Path) -> None:
    door, body = Door(tmp_path), good()
    assert door.call(body) == b""
    assert door.pipeline.bodies == [("traces", body, 1)]
    assert door.counters.snapshot()["traces"]["accepted"] == 1


def test_gzip(tmp_path: Path) -> None:
    door, body = Door(tmp_path), good()
    assert door.call(body, compression=grpc.Compression.Gzip) == b""
    assert door.pipeline.bodies == [("traces", body, 1)]


def test_partial_success(tmp_path: Path) -> None:
    body = trace_request(span(now=time.time_ns(), trace_id=b"x")).SerializeToString()
    answer = ExportTraceServiceResponse.FromString(Door(tmp_path).call(body))
    assert answer.partial_success.rejected_spans == 1
    assert "trace_id has 1 bytes" in answer.partial_success.error_message


def test_metrics(tmp_path: Path) -> None:
    door = Door(tmp_path)
    door.call(metric_request(time.time_ns()).SerializeToString(), METRICS)
    assert [(signal, items) for signal, _, items in door.pipeline.bodies] == [("metrics", 3)]


def test_what_is_no_request_is_an_invalid_argument(tmp_path: Path) -> None:
    door = Door(tmp_path)
    error = door.refused(b"nonsense")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "not an OTLP export request" in error.details()
    assert door.counters.snapshot()["traces"]["refused"] == {"INVALID_ARGUMENT": 1}


def test_a_body_over_the_limit_is_resource_exhausted(tmp_path: Path) -> None:
    door = Door(tmp_path, max_body_bytes=1000, max_inflated_bytes=1000)
    assert door.refused(bytes(1001)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("size", [3_000, 64 * 1024 * 1024])
def test_a_bomb_is_resource_exhausted(tmp_path: Path, size: int) -> None:
    door = Door(tmp_path, max_body_bytes=100_000 if size > 100_000 else 1000, max_inflated_bytes=100_000)
    error = door.refused(bytes(size), compression=grpc.Compression.Gzip)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert door.pipeline.bodies == []


def test_overload_is_unavailable_with_the_time_to_retry(tmp_path: Path) -> None:
    door = Door(tmp_path)
    door.pipeline.error = Overloaded("the journal is full", retry_after_s=7)
    error = door.refused(good())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    assert rpc_status(details) == (14, "the journal is full")
    assert b"google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x07" in details
    assert door.counters.snapshot()["traces"]["deferred"] == 1


def test_logs_are_taken(tmp_path: Path) -> None:
    door = Door(tmp_path)
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=time.time_ns())
    assert door.call(request.SerializeToString(), LOGS) == b""
    assert [(signal, items) for signal, _, items in door.pipeline.bodies] == [("logs", 1)]


def test_the_token(tmp_path: Path) -> None:
    door = Door(tmp_path, token="t")
    assert door.refused(good()).code() is grpc.StatusCode.UNAUTHENTICATED
    assert door.refused(good(), metadata=(("authorization", "Bearer x"),)).code() is grpc.StatusCode.UNAUTHENTICATED
    assert door.call(good(), metadata=(("authorization", "Bearer t"),)) == b""
    assert len(door.pipeline.bodies) == 1


def test_a_failure_of_ours_is_internal_without_its_text(tmp_path: Path) -> None:
    door = Door(tmp_path)
    door.pipeline.error = RuntimeError("secret path")
    error = door.refused(good())
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()

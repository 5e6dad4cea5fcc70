"""Export requests for the tests of the doors, and a pipeline that keeps what it is given."""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailtrace.ingest.receiver.checks.wire import fields, read_varint

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

TRACE_ID = bytes.fromhex("5b8efff798038103d269b633813fc60c")
ROOT_ID = bytes.fromhex("eee19b7ec3c1b174")
CHILD_ID = bytes.fromhex("eee19b7ec3c1b175")
NOW = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


def trace_request(*spans: Span) -> ExportTraceServiceRequest:
    """One resource `gw`, one scope, these spans."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key="service.name").value.string_value = "gw"
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "fixture"
    scope_spans.spans.extend(spans)
    return request


def span(span_id: bytes = ROOT_ID, *, now: int = NOW, **changes: Any) -> Span:
    """A good span of one second that ended a minute before `now`."""
    start = now - 60 * SECOND
    values: dict[str, Any] = {
        "trace_id": TRACE_ID, "span_id": span_id, "name": "gateway.request", "kind": 2,
        "start_time_unix_nano": start, "end_time_unix_nano": start + SECOND,
    }  # fmt: skip
    return Span(**{**values, **changes})


def metric_request(now: int = NOW) -> ExportMetricsServiceRequest:
    """A gauge of two points and a histogram of one."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    gauge = metrics.add(name="hw.gpu.utilization", unit="1").gauge
    gauge.data_points.add(time_unix_nano=now - SECOND, as_double=0.5)
    gauge.data_points.add(time_unix_nano=now, as_int=1)
    metrics.add(name="latency").histogram.data_points.add(time_unix_nano=now, count=1)
    return request


def spans_of(body: bytes) -> list[Span]:
    """Every span of a body, in order."""
    request = ExportTraceServiceRequest.FromString(body)
    return [one for resource in request.resource_spans for scope in resource.scope_spans for one in scope.spans]


def attributes_of(one: Span) -> dict[str, Any]:
    """Key to value, in Python's types; what is no scalar stays a message."""
    out = {}
    for pair in one.attributes:
        which = pair.value.WhichOneof("value")
        out[pair.key] = getattr(pair.value, which) if which else None
    return out


def json_span(now: int | None = None, **changes: Any) -> dict[str, Any]:
    """A good span of OTLP/JSON."""
    start = (now or time.time_ns()) - 60 * SECOND
    return {
        "traceId": TRACE_ID.hex(), "spanId": ROOT_ID.hex(), "name": "gateway.request", "kind": 2,
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + SECOND),
        "attributes": [{"key": "n", "value": {"intValue": "42"}}], **changes,
    }  # fmt: skip


def json_request(*spans: Any) -> dict[str, Any]:
    """An OTLP/JSON request of one resource."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "gw"}}]}
    scope_spans = {"scope": {"name": "fixture"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope_spans]}]}


class FakePipeline:
    """Keeps bodies; `error` is raised by submit, `stuck` futures never end."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes, int]] = []
        self.error: Exception | None = None
        self.stuck = False

    def submit(self, signal: str, body: bytes, items: int) -> Future[None]:
        if self.error is not None:
            raise self.error
        self.bodies.append((signal, body, items))
        future: Future[None] = Future()
        if not self.stuck:
            future.set_result(None)
        return future


def rpc_status(body: bytes) -> tuple[int, str]:
    """Code and message of a google.rpc.Status."""
    found = {number: (low, high) for number, _, _, low, high in fields(body, 0, len(body))}
    return read_varint(body, *found[1])[0], body[slice(*found[2])].decode()

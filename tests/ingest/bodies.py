"""OTLP bodies for the tests of this room, made with the official messages and not with code of ours."""

import os
import time
from collections.abc import Mapping, Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Value = str | bool | int | float | Sequence["Value"]
SECOND = 1_000_000_000


def set_value(target: object, value: Value) -> None:
    """Fill an AnyValue."""
    if isinstance(value, str):
        target.string_value = value  # type: ignore[attr-defined]
    elif isinstance(value, bool):
        target.bool_value = value  # type: ignore[attr-defined]
    elif isinstance(value, int):
        target.int_value = value  # type: ignore[attr-defined]
    elif isinstance(value, float):
        target.double_value = value  # type: ignore[attr-defined]
    else:
        for item in value:
            set_value(target.array_value.values.add(), item)  # type: ignore[attr-defined]


def set_attributes(target: object, attributes: Mapping[str, Value]) -> None:
    """Add attributes to a resource, scope, span or point."""
    for key, value in attributes.items():
        pair = target.attributes.add()  # type: ignore[attr-defined]
        pair.key = key
        set_value(pair.value, value)


def trace_body(
    spans: int = 1,
    *,
    service: str = "gw",
    scope: str = "test",
    start_unix_ns: int | None = None,
    duration_ns: int = 1000,
    attributes: Mapping[str, Value] | None = None,
    scope_attributes: Mapping[str, Value] | None = None,
    trace_id: bytes | None = None,
    name: str = "work",
) -> bytes:
    """One request of `spans` spans with random ids, all in one trace."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    set_attributes(resource.resource, {"service.name": service, "service.instance.id": f"{service}-1"})
    inner = resource.scope_spans.add()
    inner.scope.name = scope
    set_attributes(inner.scope, scope_attributes or {})
    start = time.time_ns() - SECOND if start_unix_ns is None else start_unix_ns
    trace = trace_id or os.urandom(16)
    for _ in range(spans):
        span = inner.spans.add()
        span.trace_id, span.span_id = trace, os.urandom(8)
        span.name, span.kind = name, 2
        span.start_time_unix_nano, span.end_time_unix_nano = start, start + duration_ns
        set_attributes(span, attributes or {})
    return request.SerializeToString()

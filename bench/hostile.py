"""Hostile OTLP requests: mutated bytes, random fields, good items with odd parts, JSON with odd values, bad packing."""

from __future__ import annotations

import copy
import gzip
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailtrace.ingest.receiver.checks.wire import length_field, varint

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def now() -> int:
    return time.time_ns()


def seed_trace(rng: random.Random) -> ExportTraceServiceRequest:
    """A request that uses every field that is stored."""
    nested = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a", value=AnyValue(bytes_value=b"\0\1"))]))
    array = AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=-1), AnyValue(string_value="s"), nested]))
    values = [
        nested,
        array,
        AnyValue(bool_value=True),
        AnyValue(double_value=0.5),
        AnyValue(string_value="é"),
        AnyValue(),
    ]
    request = ExportTraceServiceRequest()
    for _ in range(rng.randint(1, 2)):
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "fuzz"
        scope = resource.scope_spans.add()
        scope.scope.name = rng.choice(["fuzz", "tailtrace", "tailtrace.steps"])
        scope.scope.attributes.add(key="tailtrace.dropped").value.string_value = "queue_full:3"
        for _ in range(rng.randint(1, 4)):
            start = now() - rng.randrange(10**12)
            attributes = [KeyValue(key=f"k{i}", value=rng.choice(values)) for i in range(rng.randint(0, 4))]
            scope.spans.add(
                trace_id=rng.randbytes(16), span_id=rng.randbytes(8),
                parent_span_id=rng.choice([b"", rng.randbytes(8)]), name="fuzzed", kind=rng.randint(0, 5),
                start_time_unix_nano=start, end_time_unix_nano=start + 1000,
                attributes=attributes, trace_state="a=b",
                events=[Span.Event(time_unix_nano=start, name="e", attributes=attributes)],
                links=[Span.Link(trace_id=rng.randbytes(16), span_id=rng.randbytes(8), attributes=attributes)],
            ).status.code = rng.randint(0, 2)  # fmt: skip
    return request


def seed_metrics(rng: random.Random) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="g").gauge.data_points.add(time_unix_nano=now(), as_double=rng.random())
    metrics.add(name="s").sum.data_points.add(time_unix_nano=now(), as_int=rng.randrange(100))
    attributes = [KeyValue(key="k", value=AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1)])))]
    exemplar = {"time_unix_nano": now(), "as_double": 0.5, "span_id": rng.randbytes(8), "trace_id": rng.randbytes(16)}
    metrics.add(name="h").histogram.data_points.add(
        time_unix_nano=now(), count=1, sum=0.5, bucket_counts=[0, 1], explicit_bounds=[0.1], attributes=attributes,
        exemplars=[exemplar],
    )  # fmt: skip
    metrics.add(name="e").exponential_histogram.data_points.add(
        time_unix_nano=now(), count=2, scale=-1, positive={"offset": 1, "bucket_counts": [1, 300]}, zero_count=1,
        negative={"offset": -1, "bucket_counts": [1]}, exemplars=[exemplar],
    )  # fmt: skip
    metrics.add(name="q").summary.data_points.add(time_unix_nano=now(), quantile_values=[{"quantile": 0.5, "value": 1}])
    return request


def seed_logs(rng: random.Random) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add(schema_url="r").scope_logs.add(schema_url="s")
    nested = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a", value=AnyValue(bytes_value=b"\0"))]))
    for _ in range(rng.randint(1, 3)):
        scope.log_records.add(
            time_unix_nano=now(), observed_time_unix_nano=now(), severity_number=9, severity_text="INFO",
            trace_id=rng.randbytes(16), span_id=rng.randbytes(8), flags=1, event_name="e",
            body=rng.choice((AnyValue(string_value="é"), nested)), attributes=[KeyValue(key="k", value=nested)],
        )  # fmt: skip
    return request


_SEEDS: dict[str, Callable[[random.Random], Any]] = {"traces": seed_trace, "metrics": seed_metrics, "logs": seed_logs}


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A few changes of bytes: flips, cuts, copies, numbers at the edges."""
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        if not body:
            break
        at = rng.randrange(len(body))
        match rng.randrange(6):
            case 0:
                body[at] ^= 1 << rng.randrange(8)
            case 1:
                body[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del body[at : at + rng.randint(1, 16)]
            case 3:
                body[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4:
                part = body[at : at + rng.randint(1, 64)]
                to = rng.randrange(len(body))
                body[to:to] = part
            case _:
                body[at : at + 9] = varint(rng.choice((0, 2**31, 2**32, 2**63, 2**64 - 1)))
    return bytes(body)


def built(rng: random.Random, depth: int = 0) -> bytes:
    """A message of fields with numbers that OTLP uses and contents of any type: sound as protobuf, rarely as OTLP."""
    parts = []
    for _ in range(rng.randint(0, 5)):
        number = rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 200))
        match rng.randrange(8 if depth < 9 else 5):
            case 0:
                parts.append(varint(number << 3) + varint(rng.choice((0, 1, 2, 255, 2**31, 2**63, 2**64 - 1))))
            case 1:
                parts.append(varint(number << 3 | 1) + rng.choice((rng.randbytes(8), now().to_bytes(8, "little"))))
            case 2:
                parts.append(varint(number << 3 | 5) + rng.randbytes(4))
            case 3 | 4:
                parts.append(length_field(number, rng.randbytes(rng.choice((0, 1, 8, 16, 40)))))
            case _:
                parts.append(length_field(number, built(rng, depth + 1)))
    return b"".join(parts)


def good_item(rng: random.Random, signal: str) -> tuple[bytes, tuple[int, ...], tuple[int, ...]]:
    """A good span, log record or point; numbers of its fields that hold bytes; the fields of a metric around it."""
    start = now() - 10**9
    if signal == "traces":
        span = Span(
            trace_id=rng.randbytes(16), span_id=rng.randbytes(8), name="fuzzed",
            start_time_unix_nano=start, end_time_unix_nano=start,
        )  # fmt: skip
        return span.SerializeToString(), (3, 5, 9, 9, 9, 11, 13, 15), ()
    if signal == "logs":
        return LogRecord(time_unix_nano=start).SerializeToString(), (3, 5, 5, 6, 6, 9, 10, 12), ()
    kind = rng.choice((5, 7, 9, 9, 10, 10, 11))
    held = {5: (5, 7), 7: (5, 7), 9: (6, 6, 7, 7, 8, 9), 10: (1, 8, 8, 9, 9, 11), 11: (6, 7)}[kind]
    return NumberDataPoint(time_unix_nano=start).SerializeToString(), held, (kind, 1)


def grafted(rng: random.Random, signal: str) -> bytes:
    """A good item with legal and illegal fields behind it: what a plain parser merges, a columnar one may refuse."""
    item, held, around = good_item(rng, signal)
    number = rng.choice(held)
    extra = b"".join(
        length_field(number, b"" if rng.random() < 0.2 else built(rng, 7)) for _ in range(rng.randint(1, 3))
    )
    scope = length_field(1, built(rng, 8)) if rng.random() < 0.3 else b""
    resource = length_field(1, built(rng, 8)) if rng.random() < 0.3 else b""
    inner = item + extra
    for each in reversed(around):
        inner = length_field(each, inner)
    return length_field(1, resource + length_field(2, scope + length_field(2, inner)))


_ODD: tuple[Any, ...] = (
    None, True, -1, 0.5, 2**63, 2**64, 1e400, "", "x", "\ud800", "0" * 32, "W47/95gDgQPSabYzgT/GDA==", [], {}, [[[[]]]],
    {"stringValue": {"a": 1}}, {"arrayValue": {"values": [{"kvlistValue": {"values": [5, None]}}]}}, "9" * 400,
)  # fmt: skip


def json_body(rng: random.Random, signal: str) -> bytes:
    """OTLP/JSON with a few values replaced, moved or damaged as text."""
    start = str(now())
    value = rng.choice(({"intValue": "1"}, {"stringValue": "a"}, {"arrayValue": {"values": [{"boolValue": True}]}}))
    attributes = [{"key": "k", "value": value}]
    span = {
        "traceId": rng.randbytes(16).hex(), "spanId": rng.randbytes(8).hex(), "name": "fuzzed", "kind": 2,
        "startTimeUnixNano": start, "endTimeUnixNano": start, "attributes": attributes, "status": {"code": 1},
        "events": [{"timeUnixNano": start, "name": "e", "attributes": attributes}],
        "links": [{"traceId": rng.randbytes(16).hex(), "spanId": rng.randbytes(8).hex()}],
    }  # fmt: skip
    point = {
        "timeUnixNano": start, "asInt": "5", "attributes": attributes, "bucketCounts": ["1"], "explicitBounds": [],
        "positive": {"offset": 1, "bucketCounts": ["2", 3]}, "quantileValues": [{"quantile": 0.5, "value": "NaN"}],
    }  # fmt: skip
    held = rng.choice(("gauge", "sum", "histogram", "exponentialHistogram", "summary"))
    record = {
        "timeUnixNano": start, "severityNumber": 9, "body": value, "attributes": attributes,
        "traceId": rng.randbytes(16).hex(), "spanId": rng.randbytes(8).hex(),
    }  # fmt: skip
    inner, kind = {
        "traces": ({"spans": [span]}, "Spans"),
        "metrics": ({"metrics": [{"name": "m", held: {"dataPoints": [point]}}]}, "Metrics"),
        "logs": ({"logRecords": [record]}, "Logs"),
    }[signal]
    tree: Any = copy.deepcopy({f"resource{kind}": [{"resource": {"attributes": attributes}, f"scope{kind}": [inner]}]})
    for _ in range(rng.randint(0, 2)):
        node = tree
        while isinstance(node, dict | list) and node:
            key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            if rng.random() < 0.2 or not isinstance(node[key], dict | list) or not node[key]:
                node[key] = copy.deepcopy(rng.choice(_ODD))
                break
            node = node[key]
    body = json.dumps(tree).encode()
    return mutated(rng, body) if rng.random() < 0.3 else body


Input = tuple[str, str, bytes, str]  # door, signal, body, content encoding


def one_input(rng: random.Random) -> Input:
    """The next hostile request."""
    signal = rng.choices(("traces", "metrics", "logs"), (50, 30, 20))[0]
    door = rng.choices(("protobuf", "json", "packed", "grpc"), (45, 25, 18, 12))[0]
    if door == "json":
        return door, signal, json_body(rng, signal), "identity"
    body = _SEEDS[signal](rng).SerializeToString()
    match rng.randrange(6):
        case 0:
            body = built(rng)
        case 1 | 2:
            body = grafted(rng, signal)
        case _:
            body = mutated(rng, body)
    if door != "packed":
        return door, signal, body, "identity"
    encoding = rng.choice(("gzip", "zstd"))
    pack = gzip.compress if encoding == "gzip" else zstd.compress
    packed = pack(body, 1) * rng.choice((1, 1, 2))
    return door, signal, mutated(rng, packed) if rng.random() < 0.6 else packed, encoding


def canary(rng: random.Random) -> Input:
    """A good span, which must be stored whatever comes beside it."""
    start = now() - 10**9
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(
        trace_id=rng.randbytes(16), span_id=rng.randbytes(8), name="canary",
        start_time_unix_nano=start, end_time_unix_nano=start,
    )  # fmt: skip
    return "protobuf", "traces", request.SerializeToString(), "identity"

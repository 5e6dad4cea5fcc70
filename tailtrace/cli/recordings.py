"""Recorded OTLP: files as the bodies an exporter once sent.

Read are one protobuf body a file, length-delimited protobuf bodies (a journal segment), one OTLP/JSON body a file, and
one OTLP/JSON body a line (the Collector's file exporter), and Dynamo's request trace; each of them also gzipped.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tailtrace.cli import dynamo_requests
from tailtrace.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

Signal = Literal["traces", "metrics", "logs"]

_JSON_ROOTS: Final[dict[str, Signal]] = {
    "resourceSpans": "traces",
    "resourceMetrics": "metrics",
    "resourceLogs": "logs",
}
_ITEMS: Final[dict[Signal, tuple[str, ...]]] = {
    "traces": ("resource_spans", "scope_spans", "spans"),
    "metrics": ("resource_metrics", "scope_metrics", "metrics"),
    "logs": ("resource_logs", "scope_logs", "log_records"),
}
_JSON_ITEMS: Final[dict[Signal, tuple[str, ...]]] = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
BACKFILL: Final = "tailtrace.backfill"
_FIELD_1: Final = 0x0A  # every export request is one repeated message field, number 1


@dataclass(frozen=True, slots=True)
class Body:
    """One request of an exporter; `content` is a parsed protobuf message or the object of a JSON body."""

    signal: Signal
    content: Any
    encoding: Literal["protobuf", "json"]

    @property
    def content_type(self) -> str:
        return "application/x-protobuf" if self.encoding == "protobuf" else "application/json"

    def encode(self) -> bytes:
        if self.encoding == "json":
            return json.dumps(self.content).encode()
        data: bytes = self.content.SerializeToString()
        return data

    def items(self) -> int:
        """Spans, metrics or log records in it."""
        if self.encoding == "json":
            return _count_json(self.content, _JSON_ITEMS[self.signal])
        return _count(self.content, _ITEMS[self.signal])

    def newest_unix_ns(self) -> int:
        """The latest time in it, 0 when it holds none."""
        times = _json_times(self.content) if self.encoding == "json" else _times(self.content)
        return max(times, default=0)

    def shifted(self, by_ns: int) -> Body:
        """The same telemetry, every known time moved by `by_ns`; an unknown (zero) time stays unknown."""
        if self.encoding == "json":
            return replace(self, content=_shift_json(self.content, by_ns))
        moved = type(self.content)()
        moved.CopyFrom(self.content)
        _shift(moved, by_ns)
        return replace(self, content=moved)

    def backfilled(self) -> Body:
        """The same telemetry whose processes say that it is sent long after it happened."""
        if self.encoding == "json":
            entry = {"key": BACKFILL, "value": {"boolValue": True}}
            content = dict(self.content)
            for root in _JSON_ROOTS.keys() & content.keys():
                content[root] = [_declared_json(each, entry) for each in content[root] or []]
            return replace(self, content=content)
        declared = type(self.content)()
        declared.CopyFrom(self.content)
        for each in getattr(declared, _ITEMS[self.signal][0]):
            if not any(attribute.key == BACKFILL for attribute in each.resource.attributes):
                each.resource.attributes.add(key=BACKFILL).value.bool_value = True
        return replace(self, content=declared)


def _declared_json(entry_of_process: Any, entry: dict[str, Any]) -> Any:
    if not isinstance(entry_of_process, dict):
        return entry_of_process
    resource = dict(entry_of_process.get("resource") or {})
    kept = [each for each in resource.get("attributes") or [] if each.get("key") != entry["key"]]
    return {**entry_of_process, "resource": {**resource, "attributes": [*kept, entry]}}


def read_recording(path: Path) -> Iterator[Body]:
    """The bodies of one file, in order. Raises ConfigError for what is not recorded OTLP."""
    data = _read(path)
    if data[:64].lstrip()[:1] == b"{":
        yield from _json_bodies(path, data)
    elif _is_body(data):
        yield _parse(path, 1, data)
    else:
        for number, body in enumerate(_delimited(path, data), start=1):
            yield _parse(path, number, body)


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"{path}: damaged gzip ({error})") from None
    if not data:
        raise ConfigError(f"{path}: empty")
    return data


def _json_bodies(path: Path, data: bytes) -> Iterator[Body]:
    try:
        documents = [json.loads(data)]
    except ValueError:
        documents = []
        for number, line in enumerate(data.splitlines(), start=1):
            if line.strip():
                try:
                    documents.append(json.loads(line))
                except ValueError as error:
                    raise ConfigError(f"{path}, line {number}: not JSON ({error})") from None
    for number, document in enumerate(documents, start=1):
        if dynamo_requests.is_record(document):
            request = dynamo_requests.to_otlp(document)
            if request is not None:
                yield Body("traces", request, "json")
            continue
        found = [signal for root, signal in _JSON_ROOTS.items() if isinstance(document, dict) and root in document]
        if not found:
            raise ConfigError(f"{path}, body {number}: expected an object with {', '.join(_JSON_ROOTS)}")
        yield Body(found[0], document, "json")


def _is_body(data: bytes) -> bool:
    """Whether the bytes are field 1 over and over, to the very end."""
    at = 0
    while at < len(data):
        if data[at] != _FIELD_1:
            return False
        length, at = _varint(data, at + 1)
        at += length
    return at == len(data)


def _delimited(path: Path, data: bytes) -> Iterator[bytes]:
    at = number = 0
    while at < len(data):
        number += 1
        length, start = _varint(data, at)
        at = start + length
        if at > len(data) or not _is_body(data[start:at]):
            raise ConfigError(f"{path}: neither OTLP protobuf nor OTLP/JSON (at body {number}, byte {start})")
        yield data[start:at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at an offset and the offset behind it; a cut one reaches behind the end."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return 1, len(data)


@cache
def _requests() -> dict[Signal, type[Message]]:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return {
        "traces": ExportTraceServiceRequest,
        "metrics": ExportMetricsServiceRequest,
        "logs": ExportLogsServiceRequest,
    }


def _parse(path: Path, number: int, data: bytes) -> Body:
    """A protobuf body does not say its signal: a span is known by its ids, else the reading that keeps most wins."""
    from google.protobuf.message import DecodeError

    best: Body | None = None
    unread = len(data) + 1
    for signal, request in _requests().items():
        try:
            message = request.FromString(data)
        except DecodeError:
            continue
        if signal == "traces" and _has_span_ids(message):
            return Body(signal, message, "protobuf")
        kept = message.SerializeToString()
        message.DiscardUnknownFields()  # type: ignore[attr-defined]
        lost = len(kept) - len(message.SerializeToString())
        if signal != "traces" and lost < unread:
            best, unread = Body(signal, request.FromString(data), "protobuf"), lost
    if best is None:
        raise ConfigError(f"{path}, body {number}: not an OTLP request of traces, metrics or logs")
    return best


def _has_span_ids(message: Any) -> bool:
    return any(
        len(span.trace_id) == 16 and len(span.span_id) == 8
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )


def _count(message: Any, path: tuple[str, ...]) -> int:
    children = getattr(message, path[0])
    return len(children) if len(path) == 1 else sum(_count(child, path[1:]) for child in children)


def _count_json(value: Any, path: tuple[str, ...]) -> int:
    children = value.get(path[0]) or [] if isinstance(value, dict) else []
    return len(children) if len(path) == 1 else sum(_count_json(child, path[1:]) for child in children)


@cache
def _layout(descriptor: Descriptor) -> tuple[tuple[str, ...], tuple[tuple[str, bool], ...]]:
    """Names of a message's time fields, and of its message fields below which there are any (with: repeated?)."""
    times = tuple(f.name for f in descriptor.fields if f.message_type is None and f.name.endswith("time_unix_nano"))
    below = tuple(
        (f.name, bool(f.is_repeated))
        for f in descriptor.fields
        if f.message_type is not None and f.message_type.name not in ("AnyValue", "KeyValue") and _any(f.message_type)
    )
    return times, below


def _any(descriptor: Descriptor) -> bool:
    times, below = _layout(descriptor)
    return bool(times or below)


def _children(message: Any) -> Iterator[Any]:
    for name, repeated in _layout(message.DESCRIPTOR)[1]:
        if repeated:
            yield from getattr(message, name)
        elif message.HasField(name):
            yield getattr(message, name)


def _times(message: Any) -> Iterator[int]:
    for name in _layout(message.DESCRIPTOR)[0]:
        yield getattr(message, name)
    for child in _children(message):
        yield from _times(child)


def _shift(message: Any, by_ns: int) -> None:
    for name in _layout(message.DESCRIPTOR)[0]:
        value = getattr(message, name)
        if value:
            setattr(message, name, _bounded(value + by_ns))
    for child in _children(message):
        _shift(child, by_ns)


def _json_times(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for child in value:
            yield from _json_times(child)
    elif isinstance(value, dict):
        for key, child in value.items():
            if key.endswith("imeUnixNano"):
                yield _number(child)
            elif key != "attributes":
                yield from _json_times(child)


def _shift_json(value: Any, by_ns: int) -> Any:
    if isinstance(value, list):
        return [_shift_json(child, by_ns) for child in value]
    if not isinstance(value, dict):
        return value
    moved = {}
    for key, child in value.items():
        if key.endswith("imeUnixNano"):
            moved[key] = str(_bounded(number + by_ns)) if (number := _number(child)) else child
        else:
            moved[key] = child if key == "attributes" else _shift_json(child, by_ns)
    return moved


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _bounded(time_unix_ns: int) -> int:
    return min(max(time_unix_ns, 1), 2**64 - 1)

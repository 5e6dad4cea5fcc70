"""OTLP/JSON to OTLP/protobuf.

Own code, because protobuf's json_format reads hex ids as base64 without a word, and lets one bad value cost the whole
request. Unknown fields are ignored; a bad span, point or record costs itself; an attribute value that does not fit its
type is kept as text.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tailtrace.errors import Rejected
from tailtrace.ingest.receiver.checks.values import CUT
from tailtrace.ingest.receiver.checks.wire import FIXED32, FIXED64, length_field, varint, varint_field

_NESTING: Final = 40
"""Levels of an attribute value that are converted; the check cuts, and counts, what is deeper than its own limit."""

_INT64: Final = 1 << 63


class _BadItem(ValueError):
    """One span, data point or log record that cannot be read; `kind` is the name it is counted under."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Converted:
    """The request in protobuf, and the items that did not make it there."""

    body: bytes
    rejected: Counter[str]
    first_reason: str


def to_protobuf(signal: str, body: bytes) -> Converted:
    """Converts an export request. Raises Rejected where it is no JSON, or where its frame is not that of OTLP."""
    converter = _Converter()
    request = _parsed(body)
    if not isinstance(request, dict):
        raise Rejected(f"not an OTLP/JSON export request: expected an object, got {type(request).__name__}")
    try:
        out = converter.message(_REQUESTS[signal], request)
    except _BadItem as error:
        raise Rejected(f"not an OTLP/JSON export request: {error}") from error
    return Converted(out, converter.rejected, converter.first_reason)


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        # Slower, but it takes lone surrogates and bytes that are no UTF-8, which cost a character and not the batch.
        return json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Rejected(f"the body is not JSON: {error}") from error


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _text(number: int, value: Any, name: str) -> bytes:
    if isinstance(value, dict | list):
        raise _BadItem("bad_field", f"{name} is {type(value).__name__}, expected a string")
    return length_field(number, _as_text(value))


def _hex(number: int, value: Any, name: str) -> bytes:
    kind = "bad_trace_id" if name == "traceId" else "bad_span_id"
    if not isinstance(value, str):
        raise _BadItem(kind, f"{name} is {type(value).__name__}, expected hex digits")
    try:
        identifier = bytes.fromhex(value)
    except ValueError:
        identifier = b""
    if len(value) != 2 * len(identifier):
        shown = value[:64].encode("ascii", "replace").decode()
        hint = " (base64 is for other fields: OTLP/JSON ids are hex)" if value.endswith("=") else ""
        raise _BadItem(kind, f"{name} {shown!r} is not hex digits{hint}")
    return length_field(number, identifier)


def _parent(number: int, value: Any, name: str) -> bytes:
    try:
        return _hex(number, value, name)
    except _BadItem:
        return length_field(number, b"\0")  # of a length that the check drops and counts


def _integer(value: Any, name: str) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise _BadItem("bad_field", f"{name} is {value[:40]!r}, expected a whole number") from None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise _BadItem("bad_field", f"{name} is {type(value).__name__}, expected a whole number")
    return value


def _fixed64(number: int, value: Any, name: str) -> bytes:
    whole = _integer(value, name)
    if not -_INT64 <= whole < 2 * _INT64:
        raise _BadItem("bad_field", f"{name} is {str(whole)[:40]}, which does not fit 64 bits")
    return varint(number << 3 | FIXED64) + struct.pack("<Q", whole & (2 * _INT64 - 1))


def _double(number: int, value: Any, name: str) -> bytes:
    try:
        return varint(number << 3 | FIXED64) + struct.pack("<d", float(value))
    except (TypeError, ValueError, OverflowError):
        raise _BadItem("bad_field", f"{name} is {str(value)[:40]!r}, expected a number") from None


def _bool(number: int, value: Any, name: str) -> bytes:
    return varint_field(number, 1 if value is True or value == "true" else 0)


def _uint(number: int, value: Any, name: str) -> bytes:
    return varint_field(number, _integer(value, name))


def _zigzag(number: int, value: Any, name: str) -> bytes:
    whole = _integer(value, name)
    return varint_field(number, (whole << 1) ^ (whole >> 63))


def _fixed32(number: int, value: Any, name: str) -> bytes:
    return varint(number << 3 | FIXED32) + struct.pack("<I", _integer(value, name) & 0xFFFF_FFFF)


def _packed(number: int, value: Any, name: str, one: Callable[[Any, str], bytes]) -> bytes:
    if not isinstance(value, list):
        raise _BadItem("bad_field", f"{name} is {type(value).__name__}, expected a list")
    return length_field(number, b"".join(one(each, name) for each in value))


def _fixed64s(number: int, value: Any, name: str) -> bytes:
    return _packed(number, value, name, lambda each, of: _fixed64(number, each, of)[1:])


def _doubles(number: int, value: Any, name: str) -> bytes:
    return _packed(number, value, name, lambda each, of: _double(number, each, of)[1:])


def _varints(number: int, value: Any, name: str) -> bytes:
    return _packed(number, value, name, lambda each, of: varint(_integer(each, of)))


def _value(number: int, value: Any, name: str) -> bytes:
    return length_field(number, _any_value(value, _NESTING))


def _enum(prefix: str, *names: str) -> Callable[[int, Any, str], bytes]:
    numbers = {name: number for number, name in enumerate(names)}

    def encode(number: int, value: Any, name: str) -> bytes:
        if isinstance(value, str):
            known = numbers.get(value.removeprefix(prefix))
            if known is not None:
                return varint_field(number, known)
        return varint_field(number, _integer(value, name))

    return encode


_Encoder = Callable[[int, Any, str], bytes]


@dataclass(frozen=True, slots=True)
class _Many:
    """A repeated message; `item` if a bad one is rejected alone."""

    message: str
    item: bool = False


@dataclass(frozen=True, slots=True)
class _One:
    """A message."""

    message: str


_ATTRIBUTES: Final = ("attributes", _Many("KeyValue"))
_KIND: Final = _enum("SPAN_KIND_", "UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUS: Final = _enum("STATUS_CODE_", "UNSET", "OK", "ERROR")
_SEVERITY: Final = _enum(
    "SEVERITY_NUMBER_",
    "UNSPECIFIED",
    *(f"{name}{n or ''}" for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL") for n in ("", 2, 3, 4)),
)
_TEMPORALITY: Final = _enum("AGGREGATION_TEMPORALITY_", "UNSPECIFIED", "DELTA", "CUMULATIVE")

_REQUESTS: Final = {"traces": "Request", "metrics": "MetricsRequest", "logs": "LogsRequest"}
_EXEMPLARS: Final = ("exemplars", _Many("Exemplar"))

_MESSAGES: Final[dict[str, dict[int, tuple[str, _Encoder | _Many | _One]]]] = {
    "Request": {1: ("resourceSpans", _Many("ResourceSpans"))},
    "ResourceSpans": {1: ("resource", _One("Resource")), 2: ("scopeSpans", _Many("ScopeSpans"))},
    "ScopeSpans": {1: ("scope", _One("Scope")), 2: ("spans", _Many("Span", item=True))},
    "Resource": {1: _ATTRIBUTES},
    "Scope": {1: ("name", _text), 2: ("version", _text), 3: _ATTRIBUTES},
    "Span": {
        1: ("traceId", _hex),
        2: ("spanId", _hex),
        3: ("traceState", _text),
        4: ("parentSpanId", _parent),
        5: ("name", _text),
        6: ("kind", _KIND),
        7: ("startTimeUnixNano", _fixed64),
        8: ("endTimeUnixNano", _fixed64),
        9: _ATTRIBUTES,
        11: ("events", _Many("Event")),
        13: ("links", _Many("Link")),
        15: ("status", _One("Status")),
    },
    "Event": {1: ("timeUnixNano", _fixed64), 2: ("name", _text), 3: _ATTRIBUTES},
    "Link": {1: ("traceId", _parent), 2: ("spanId", _parent), 3: ("traceState", _text), 4: _ATTRIBUTES},
    "Status": {2: ("message", _text), 3: ("code", _STATUS)},
    "MetricsRequest": {1: ("resourceMetrics", _Many("ResourceMetrics"))},
    "ResourceMetrics": {1: ("resource", _One("Resource")), 2: ("scopeMetrics", _Many("ScopeMetrics"))},
    "ScopeMetrics": {1: ("scope", _One("Scope")), 2: ("metrics", _Many("Metric"))},
    "Metric": {
        1: ("name", _text),
        2: ("description", _text),
        3: ("unit", _text),
        5: ("gauge", _One("Gauge")),
        7: ("sum", _One("Sum")),
        9: ("histogram", _One("Histogram")),
        10: ("exponentialHistogram", _One("ExponentialHistogram")),
        11: ("summary", _One("Summary")),
    },
    "Gauge": {1: ("dataPoints", _Many("Number", item=True))},
    "Sum": {
        1: ("dataPoints", _Many("Number", item=True)),
        2: ("aggregationTemporality", _TEMPORALITY),
        3: ("isMonotonic", _bool),
    },
    "Number": {
        2: ("startTimeUnixNano", _fixed64),
        3: ("timeUnixNano", _fixed64),
        4: ("asDouble", _double),
        5: _EXEMPLARS,
        6: ("asInt", _fixed64),
        7: _ATTRIBUTES,
        8: ("flags", _uint),
    },
    "Histogram": {
        1: ("dataPoints", _Many("HistogramPoint", item=True)),
        2: ("aggregationTemporality", _TEMPORALITY),
    },
    "HistogramPoint": {
        2: ("startTimeUnixNano", _fixed64),
        3: ("timeUnixNano", _fixed64),
        4: ("count", _fixed64),
        5: ("sum", _double),
        6: ("bucketCounts", _fixed64s),
        7: ("explicitBounds", _doubles),
        8: _EXEMPLARS,
        9: _ATTRIBUTES,
        10: ("flags", _uint),
        11: ("min", _double),
        12: ("max", _double),
    },
    "ExponentialHistogram": {
        1: ("dataPoints", _Many("ExponentialPoint", item=True)),
        2: ("aggregationTemporality", _TEMPORALITY),
    },
    "ExponentialPoint": {
        1: _ATTRIBUTES,
        2: ("startTimeUnixNano", _fixed64),
        3: ("timeUnixNano", _fixed64),
        4: ("count", _fixed64),
        5: ("sum", _double),
        6: ("scale", _zigzag),
        7: ("zeroCount", _fixed64),
        8: ("positive", _One("Buckets")),
        9: ("negative", _One("Buckets")),
        10: ("flags", _uint),
        11: _EXEMPLARS,
        12: ("min", _double),
        13: ("max", _double),
        14: ("zeroThreshold", _double),
    },
    "Buckets": {1: ("offset", _zigzag), 2: ("bucketCounts", _varints)},
    "Summary": {1: ("dataPoints", _Many("SummaryPoint", item=True))},
    "SummaryPoint": {
        2: ("startTimeUnixNano", _fixed64),
        3: ("timeUnixNano", _fixed64),
        4: ("count", _fixed64),
        5: ("sum", _double),
        6: ("quantileValues", _Many("Quantile")),
        7: _ATTRIBUTES,
        8: ("flags", _uint),
    },
    "Quantile": {1: ("quantile", _double), 2: ("value", _double)},
    "Exemplar": {
        2: ("timeUnixNano", _fixed64),
        3: ("asDouble", _double),
        4: ("spanId", _parent),
        5: ("traceId", _parent),
        6: ("asInt", _fixed64),
        7: ("filteredAttributes", _Many("KeyValue")),
    },
    "LogsRequest": {1: ("resourceLogs", _Many("ResourceLogs"))},
    "ResourceLogs": {
        1: ("resource", _One("Resource")),
        2: ("scopeLogs", _Many("ScopeLogs")),
        3: ("schemaUrl", _text),
    },
    "ScopeLogs": {
        1: ("scope", _One("Scope")),
        2: ("logRecords", _Many("LogRecord", item=True)),
        3: ("schemaUrl", _text),
    },
    "LogRecord": {
        1: ("timeUnixNano", _fixed64),
        2: ("severityNumber", _SEVERITY),
        3: ("severityText", _text),
        5: ("body", _value),
        6: _ATTRIBUTES,
        8: ("flags", _fixed32),
        9: ("traceId", _parent),
        10: ("spanId", _parent),
        11: ("observedTimeUnixNano", _fixed64),
        12: ("eventName", _text),
    },
}

_BY_NAME: Final = {
    message: {name: (number, how) for number, (name, how) in fields.items()} for message, fields in _MESSAGES.items()
}


class _Converter:
    def __init__(self) -> None:
        self.rejected: Counter[str] = Counter()
        self.first_reason = ""

    def message(self, name: str, value: Any) -> bytes:
        """The payload of one message. Raises _BadItem."""
        if name == "KeyValue":
            return self._attribute(value)
        if not isinstance(value, dict):
            raise _BadItem("bad_field", f"{name} is {type(value).__name__}, expected an object")
        known = _BY_NAME[name]
        parts: list[bytes] = []
        for key, content in value.items():
            found = known.get(key)
            if found is None or content is None:
                continue
            number, how = found
            if isinstance(how, _One):
                parts.append(length_field(number, self.message(how.message, content)))
            elif isinstance(how, _Many):
                if not isinstance(content, list):
                    raise _BadItem("bad_field", f"{key} is {type(content).__name__}, expected a list")
                for each in content:
                    self._append(parts, number, how, each)
            else:
                parts.append(how(number, content, key))
        return b"".join(parts)

    def _append(self, parts: list[bytes], number: int, how: _Many, value: Any) -> None:
        try:
            parts.append(length_field(number, self.message(how.message, value)))
        except _BadItem as error:
            if not how.item:
                raise
            self.rejected[error.kind] += 1
            if not self.first_reason:
                span_id = value.get("spanId") if isinstance(value, dict) else None
                named = f"span {_utf8(str(span_id)[:40]).decode()}: " if span_id is not None else ""
                self.first_reason = f"{named}{error}"

    def _attribute(self, value: Any) -> bytes:
        if not isinstance(value, dict):
            raise _BadItem(
                "bad_field", f"an attribute is {type(value).__name__}, expected an object with key and value"
            )
        key = _text(1, value.get("key", ""), "key")
        content = value.get("value")
        return key if content is None else key + length_field(2, _any_value(content, _NESTING))


def _any_value(value: Any, depth: int) -> bytes:
    """An AnyValue; what does not fit its declared type is kept as the text that was sent."""
    if depth <= 0:
        return length_field(1, CUT.encode())
    if not isinstance(value, dict):
        return length_field(1, _as_text(value))
    for name, content in value.items():
        if content is None:
            continue
        try:
            match name:
                case "stringValue":
                    return _text(1, content, name)
                case "boolValue":
                    return _bool(2, content, name)
                case "intValue":
                    whole = _integer(content, name)
                    if not -_INT64 <= whole < _INT64:
                        return length_field(1, _as_text(content))
                    return varint_field(3, whole)
                case "doubleValue":
                    return _double(4, content, name)
                case "bytesValue":
                    return length_field(7, base64.b64decode(content, validate=True))
                case "arrayValue":
                    items = (length_field(1, _any_value(each, depth - 1)) for each in content.get("values") or ())
                    return length_field(5, b"".join(items))
                case "kvlistValue":
                    pairs = (
                        length_field(
                            1,
                            _text(1, each.get("key", ""), "key")
                            + length_field(2, _any_value(each.get("value"), depth - 1)),
                        )
                        for each in content.get("values") or ()
                    )  # fmt: skip
                    return length_field(6, b"".join(pairs))
        except (_BadItem, AttributeError, TypeError, binascii.Error, ValueError):
            return length_field(1, _as_text(content))
    return b""


def _as_text(value: Any) -> bytes:
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).encode()
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        try:
            return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        except (ValueError, RecursionError):
            return CUT.encode()

"""OTLP/JSON to OTLP/protobuf.

Own code, because protobuf's json_format reads hex ids as base64 without a word, and lets one bad value cost the whole
request. Unknown fields are ignored; a bad span, point or record costs itself; an attribute value that does not fit its
type is kept as text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tailtrace.errors import Rejected
from tailtrace.ingest.receiver.checks.wire import length_field
from tailtrace.ingest.receiver.json_fields import (
    NESTING,
    BadItem,
    any_value,
    bool_field,
    double_field,
    doubles_field,
    enum_field,
    fixed32_field,
    fixed64_field,
    fixed64s_field,
    hex_field,
    parent_field,
    text_field,
    uint_field,
    utf8,
    value_field,
    varints_field,
    zigzag_field,
)


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
    except BadItem as error:
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
_KIND: Final = enum_field("SPAN_KIND_", "UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUS: Final = enum_field("STATUS_CODE_", "UNSET", "OK", "ERROR")
_SEVERITY: Final = enum_field(
    "SEVERITY_NUMBER_",
    "UNSPECIFIED",
    *(f"{name}{n or ''}" for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL") for n in ("", 2, 3, 4)),
)
_TEMPORALITY: Final = enum_field("AGGREGATION_TEMPORALITY_", "UNSPECIFIED", "DELTA", "CUMULATIVE")

_REQUESTS: Final = {"traces": "Request", "metrics": "MetricsRequest", "logs": "LogsRequest"}
_EXEMPLARS: Final = ("exemplars", _Many("Exemplar"))

_MESSAGES: Final[dict[str, dict[int, tuple[str, _Encoder | _Many | _One]]]] = {
    "Request": {1: ("resourceSpans", _Many("ResourceSpans"))},
    "ResourceSpans": {1: ("resource", _One("Resource")), 2: ("scopeSpans", _Many("ScopeSpans"))},
    "ScopeSpans": {1: ("scope", _One("Scope")), 2: ("spans", _Many("Span", item=True))},
    "Resource": {1: _ATTRIBUTES},
    "Scope": {1: ("name", text_field), 2: ("version", text_field), 3: _ATTRIBUTES},
    "Span": {
        1: ("traceId", hex_field),
        2: ("spanId", hex_field),
        3: ("traceState", text_field),
        4: ("parentSpanId", parent_field),
        5: ("name", text_field),
        6: ("kind", _KIND),
        7: ("startTimeUnixNano", fixed64_field),
        8: ("endTimeUnixNano", fixed64_field),
        9: _ATTRIBUTES,
        11: ("events", _Many("Event")),
        13: ("links", _Many("Link")),
        15: ("status", _One("Status")),
    },
    "Event": {1: ("timeUnixNano", fixed64_field), 2: ("name", text_field), 3: _ATTRIBUTES},
    "Link": {1: ("traceId", parent_field), 2: ("spanId", parent_field), 3: ("traceState", text_field), 4: _ATTRIBUTES},
    "Status": {2: ("message", text_field), 3: ("code", _STATUS)},
    "MetricsRequest": {1: ("resourceMetrics", _Many("ResourceMetrics"))},
    "ResourceMetrics": {1: ("resource", _One("Resource")), 2: ("scopeMetrics", _Many("ScopeMetrics"))},
    "ScopeMetrics": {1: ("scope", _One("Scope")), 2: ("metrics", _Many("Metric"))},
    "Metric": {
        1: ("name", text_field),
        2: ("description", text_field),
        3: ("unit", text_field),
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
        3: ("isMonotonic", bool_field),
    },
    "Number": {
        2: ("startTimeUnixNano", fixed64_field),
        3: ("timeUnixNano", fixed64_field),
        4: ("asDouble", double_field),
        5: _EXEMPLARS,
        6: ("asInt", fixed64_field),
        7: _ATTRIBUTES,
        8: ("flags", uint_field),
    },
    "Histogram": {
        1: ("dataPoints", _Many("HistogramPoint", item=True)),
        2: ("aggregationTemporality", _TEMPORALITY),
    },
    "HistogramPoint": {
        2: ("startTimeUnixNano", fixed64_field),
        3: ("timeUnixNano", fixed64_field),
        4: ("count", fixed64_field),
        5: ("sum", double_field),
        6: ("bucketCounts", fixed64s_field),
        7: ("explicitBounds", doubles_field),
        8: _EXEMPLARS,
        9: _ATTRIBUTES,
        10: ("flags", uint_field),
        11: ("min", double_field),
        12: ("max", double_field),
    },
    "ExponentialHistogram": {
        1: ("dataPoints", _Many("ExponentialPoint", item=True)),
        2: ("aggregationTemporality", _TEMPORALITY),
    },
    "ExponentialPoint": {
        1: _ATTRIBUTES,
        2: ("startTimeUnixNano", fixed64_field),
        3: ("timeUnixNano", fixed64_field),
        4: ("count", fixed64_field),
        5: ("sum", double_field),
        6: ("scale", zigzag_field),
        7: ("zeroCount", fixed64_field),
        8: ("positive", _One("Buckets")),
        9: ("negative", _One("Buckets")),
        10: ("flags", uint_field),
        11: _EXEMPLARS,
        12: ("min", double_field),
        13: ("max", double_field),
        14: ("zeroThreshold", double_field),
    },
    "Buckets": {1: ("offset", zigzag_field), 2: ("bucketCounts", varints_field)},
    "Summary": {1: ("dataPoints", _Many("SummaryPoint", item=True))},
    "SummaryPoint": {
        2: ("startTimeUnixNano", fixed64_field),
        3: ("timeUnixNano", fixed64_field),
        4: ("count", fixed64_field),
        5: ("sum", double_field),
        6: ("quantileValues", _Many("Quantile")),
        7: _ATTRIBUTES,
        8: ("flags", uint_field),
    },
    "Quantile": {1: ("quantile", double_field), 2: ("value", double_field)},
    "Exemplar": {
        2: ("timeUnixNano", fixed64_field),
        3: ("asDouble", double_field),
        4: ("spanId", parent_field),
        5: ("traceId", parent_field),
        6: ("asInt", fixed64_field),
        7: ("filteredAttributes", _Many("KeyValue")),
    },
    "LogsRequest": {1: ("resourceLogs", _Many("ResourceLogs"))},
    "ResourceLogs": {
        1: ("resource", _One("Resource")),
        2: ("scopeLogs", _Many("ScopeLogs")),
        3: ("schemaUrl", text_field),
    },
    "ScopeLogs": {
        1: ("scope", _One("Scope")),
        2: ("logRecords", _Many("LogRecord", item=True)),
        3: ("schemaUrl", text_field),
    },
    "LogRecord": {
        1: ("timeUnixNano", fixed64_field),
        2: ("severityNumber", _SEVERITY),
        3: ("severityText", text_field),
        5: ("body", value_field),
        6: _ATTRIBUTES,
        8: ("flags", fixed32_field),
        9: ("traceId", parent_field),
        10: ("spanId", parent_field),
        11: ("observedTimeUnixNano", fixed64_field),
        12: ("eventName", text_field),
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
        """The payload of one message. Raises BadItem."""
        if name == "KeyValue":
            return self._attribute(value)
        if not isinstance(value, dict):
            raise BadItem("bad_field", f"{name} is {type(value).__name__}, expected an object")
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
                    raise BadItem("bad_field", f"{key} is {type(content).__name__}, expected a list")
                for each in content:
                    self._append(parts, number, how, each)
            else:
                parts.append(how(number, content, key))
        return b"".join(parts)

    def _append(self, parts: list[bytes], number: int, how: _Many, value: Any) -> None:
        try:
            parts.append(length_field(number, self.message(how.message, value)))
        except BadItem as error:
            if not how.item:
                raise
            self.rejected[error.kind] += 1
            if not self.first_reason:
                span_id = value.get("spanId") if isinstance(value, dict) else None
                named = f"span {utf8(str(span_id)[:40]).decode()}: " if span_id is not None else ""
                self.first_reason = f"{named}{error}"

    def _attribute(self, value: Any) -> bytes:
        if not isinstance(value, dict):
            raise BadItem("bad_field", f"an attribute is {type(value).__name__}, expected an object with key and value")
        key = text_field(1, value.get("key", ""), "key")
        content = value.get("value")
        return key if content is None else key + length_field(2, any_value(content, NESTING))

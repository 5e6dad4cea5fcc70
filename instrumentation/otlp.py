"""OTLP bodies written as bytes, without protobuf classes.

Follows opentelemetry-proto 1.x (trace/v1, metrics/v1). Field order inside a message is free in protobuf, so what never
changes (names, kinds, keys, short string values) is encoded once and kept. About twenty times cheaper than the SDK's
encoder for one span. Bodies may be concatenated: a repeated field simply goes on. Spans and points are one file because
they share the scalars, the pairs and their caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, Literal

from tailtrace.version import VERSION

Scalar = str | bool | int | float
Value = Scalar | bytes | Sequence[Any] | Mapping[str, Any] | None
Attributes = Mapping[str, Any]

INTERNAL: Final = 1
SERVER: Final = 2
CLIENT: Final = 3
PRODUCER: Final = 4
CONSUMER: Final = 5

STATUS_UNSET: Final = 0
STATUS_OK: Final = 1
STATUS_ERROR: Final = 2

_CUMULATIVE: Final = 2
_CACHE_LIMIT: Final = 4096
_CACHED_TEXT_LIMIT: Final = 64
_VALUES_LIMIT: Final = 256
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_MAX_DEPTH: Final = 32
_SHORT_KEY: Final = 110
_ID_AND_TIMES: Final = 28
_TIMED: Final = 18
_STARTED: Final = 27

_double = Struct("<Bd").pack
_fixed64 = Struct("<BQ").pack
_times = Struct("<BQBQ").pack
_timed_int = Struct("<BQBq").pack
_timed_double = Struct("<BQBd").pack
_started_int = Struct("<BQBQBq").pack
_started_double = Struct("<BQBQBd").pack


class SpanData:
    """One finished span. Times are nanoseconds since the Unix epoch; ids are raw bytes (16, 8, and 8 or 0 for a root).

    `kind` is OTLP's number (1 internal, 2 server, 3 client, 4 producer, 5 consumer). `links` are (trace id, span id)
    pairs; `events` are (time_unix_ns, name, attributes).
    """

    __slots__ = (
        "attributes", "end_unix_ns", "events", "kind", "links", "name", "parent_span_id", "span_id", "start_unix_ns",
        "status_code", "status_message", "trace_id", "trace_state",
    )  # fmt: skip

    def __init__(
        self,
        trace_id: bytes,
        span_id: bytes,
        parent_span_id: bytes,
        name: str,
        kind: int,
        start_unix_ns: int,
        end_unix_ns: int,
        attributes: Attributes | None = None,
        status_code: int = STATUS_UNSET,
        status_message: str = "",
        links: Sequence[tuple[bytes, bytes]] = (),
        events: Sequence[tuple[int, str, Attributes]] = (),
        trace_state: str = "",
    ) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.parent_span_id = parent_span_id
        self.name = name
        self.kind = kind
        self.start_unix_ns = start_unix_ns
        self.end_unix_ns = end_unix_ns
        self.attributes: Attributes = attributes or {}
        self.status_code = status_code
        self.status_message = status_message
        self.links = links
        self.events = events
        self.trace_state = trace_state

    def __repr__(self) -> str:
        return f"SpanData({self.name!r}, {self.trace_id.hex()}/{self.span_id.hex()}, {dict(self.attributes)!r})"


class Labels(dict[str, Any]):
    """Attributes of a series that lives long: encoded once, for all its points. Not to be changed once made.

    `head` is a data point up to its time and value, which always take as many bytes; `started_head` that of one with a
    start time.
    """

    __slots__ = ("head", "started_head")

    def __init__(self, attributes: Attributes) -> None:
        super().__init__(attributes)
        encoded = encode_attributes(attributes, 0x3A)
        self.head, self.started_head = (
            b"\x0a%b%b" % (varint(len(encoded) + size), encoded) for size in (_TIMED, _STARTED)
        )


class Point:
    """One number of one metric. A `sum` is cumulative and monotonic; `start_unix_ns` says since when."""

    __slots__ = ("attributes", "kind", "name", "start_unix_ns", "time_unix_ns", "unit", "value")

    def __init__(
        self,
        name: str,
        unit: str,
        kind: Literal["gauge", "sum"],
        value: int | float,
        time_unix_ns: int,
        attributes: Attributes | None = None,
        start_unix_ns: int = 0,
    ) -> None:
        self.name = name
        self.unit = unit
        self.kind = kind
        self.value = value
        self.time_unix_ns = time_unix_ns
        self.attributes: Attributes = attributes or {}
        self.start_unix_ns = start_unix_ns


def varint(value: int) -> bytes:
    """Base-128 of an int64; a negative one takes ten bytes, as protobuf wants it."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = [bytes((value,)) for value in range(128)]
# Most spans and attributes are this short; the whole of two bytes, 16,384, would add 7 ms to the import.
_LISTED: Final = 2048
_LENGTHS: Final = [*_SMALL, *(bytes((value & 127 | 128, value >> 7)) for value in range(128, _LISTED))]


def block(tag: int, body: bytes) -> bytes:
    """A length-delimited field whose tag takes one byte (`tag` = field number * 8 + 2)."""
    size = len(body)
    return b"%c%b%b" % (tag, _LENGTHS[size] if size < _LISTED else varint(size), body)


def _text(value: str) -> bytes:
    """UTF-8; lone surrogates, which UTF-8 cannot hold, become question marks."""
    return value.encode("utf-8", "replace")


def any_value(value: Any, depth: int = 0) -> bytes:
    """The body of an AnyValue. None is the empty AnyValue; an int beyond 64 bits, or a foreign type, is its text."""
    if isinstance(value, str):
        return block(0x0A, _text(value))
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        if _INT64_MIN <= value <= _INT64_MAX:
            return b"\x18" + varint(value)
        return block(0x0A, str(value).encode())
    if isinstance(value, float):
        return _double(0x21, value)
    if value is None:
        return b""
    if isinstance(value, (bytes, bytearray)):
        return block(0x3A, bytes(value))
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            body = b"".join(attribute(0x0A, str(key), item, depth + 1) for key, item in value.items())
            return block(0x32, body)
        if isinstance(value, (Sequence, set, frozenset)):
            return block(0x2A, b"".join(block(0x0A, any_value(item, depth + 1)) for item in value))
    return block(0x0A, _text(str(value)))


_keys: dict[str, bytes] = {}
_text_pairs: dict[tuple[int, str, str], bytes] = {}


def _key(name: str) -> bytes:
    found = _keys.get(name)
    if found is None:
        found = block(0x0A, _text(name))
        if len(_keys) < _CACHE_LIMIT:
            _keys[name] = found
    return found


def _text_pair(tag: int, name: str, value: str) -> bytes:
    pair = block(tag, _key(name) + block(0x12, block(0x0A, _text(value))))
    if len(value) <= _CACHED_TEXT_LIMIT:
        if len(_text_pairs) >= _CACHE_LIMIT:
            # Values of high cardinality (ids) push each other out; the few constant ones come back at once.
            _text_pairs.clear()
        _text_pairs[tag, name, value] = pair
    return pair


def attribute(tag: int, name: str, value: Any, depth: int = 0) -> bytes:
    """One KeyValue as a repeated field with `tag`."""
    kind = type(value)
    if kind is str:
        return _text_pairs.get((tag, name, value)) or _text_pair(tag, name, value)
    key = _keys.get(name) or _key(name)
    if len(key) < _SHORT_KEY:
        # The three scalars below make a pair of less than 128 bytes: both lengths are one byte.
        if kind is int:
            if 0 <= value < 128:
                return b"%c%c%b\x12\x02\x18%c" % (tag, len(key) + 4, key, value)
            if _INT64_MIN <= value <= _INT64_MAX:
                number = varint(value)
                size = len(number)
                return b"%c%c%b\x12%c\x18%b" % (tag, len(key) + 3 + size, key, 1 + size, number)
        elif kind is bool:
            return b"%c%c%b\x12\x02\x10%c" % (tag, len(key) + 4, key, value)
        elif kind is float:
            return b"%c%c%b\x12\x09%b" % (tag, len(key) + 11, key, _double(0x21, value))
    return block(tag, key + block(0x12, any_value(value, depth)))


def encode_attributes(attributes: Attributes, tag: int = 0x4A) -> bytes:
    """Repeated KeyValue fields. `tag`: 0x4A in a span, 0x0A a resource, 0x1A a scope or an event, 0x3A a point."""
    return b"".join([attribute(tag, name, value) for name, value in attributes.items()])


_span_texts: dict[str, dict[str, bytes]] = {}
_span_ints: dict[str, tuple[bytes, bytes]] = {}


def span_attributes(attributes: Attributes) -> bytes:
    """`encode_attributes` for the attributes of a span, quick where values are short texts and small counts."""
    encoded = b""
    for name, value in attributes.items():
        kind = type(value)
        if kind is str:
            try:
                encoded += _span_texts[name][value]
            except KeyError:
                encoded += _keep_text(name, value)
        elif kind is int and 0 <= value < _LISTED:
            try:
                encoded += _span_ints[name][value > 127] + _LENGTHS[value]
            except KeyError:
                encoded += _keep_int(name, value)
        else:
            encoded += attribute(0x4A, name, value)
    return encoded


def _keep_text(name: str, value: str) -> bytes:
    pair = attribute(0x4A, name, value)
    values = _span_texts.get(name)
    if values is None:
        values = {}
        if len(_span_texts) < _CACHE_LIMIT:
            _span_texts[name] = values
    if len(values) < _VALUES_LIMIT and len(value) <= _CACHED_TEXT_LIMIT:
        values[value] = pair
    return pair


def _keep_int(name: str, value: int) -> bytes:
    """Everything of the pair before the number itself: for numbers of one byte, and of two."""
    key = _key(name)
    if len(key) < _SHORT_KEY and len(_span_ints) < _CACHE_LIMIT:
        one, two = (b"J%c%b\x12%c\x18" % (len(key) + 3 + size, key, 1 + size) for size in (1, 2))
        _span_ints[name] = (one, two)
    return attribute(0x4A, name, value)


_heads: dict[tuple[str, int], bytes] = {}


def span_head(name: str, kind: int) -> bytes:
    """The fields `name` and `kind` of a span, kept for the next one of that name."""
    found = _heads.get((name, kind))
    if found is None:
        found = block(0x2A, _text(name)) + b"\x30" + varint(kind)
        if len(_heads) < _CACHE_LIMIT:
            _heads[name, kind] = found
    return found


def span_identity(trace_id: bytes, parent_span_id: bytes) -> bytes:
    """The fields that the children of one span share."""
    if parent_span_id:
        return b"\x0a\x10%b\x22\x08%b" % (trace_id, parent_span_id)
    return b"\x0a\x10" + trace_id


def encode_span_fields(identity: bytes, span_id: bytes, start_unix_ns: int, end_unix_ns: int, rest: bytes) -> bytes:
    """One span as a repeated field of ScopeSpans; `identity` and `rest` are its already encoded other fields."""
    size = len(identity) + len(rest) + _ID_AND_TIMES
    return b"\x12%b%b\x12\x08%b%b%b" % (
        _LENGTHS[size] if size < _LISTED else varint(size),
        identity, span_id, _times(0x39, start_unix_ns, 0x41, end_unix_ns), rest,
    )  # fmt: skip


def encode_status(code: int, message: str) -> bytes:
    if not code:
        return b""
    text = block(0x12, _text(message)) if message else b""
    return block(0x7A, text + b"\x18" + varint(code))


def encode_link(trace_id: bytes, span_id: bytes) -> bytes:
    return block(0x6A, block(0x0A, trace_id) + block(0x12, span_id))


def encode_event(time_unix_ns: int, name: str, attributes: Attributes) -> bytes:
    return block(0x5A, _fixed64(0x09, time_unix_ns) + block(0x12, _text(name)) + encode_attributes(attributes, 0x1A))


def encode_span(span: SpanData) -> bytes:
    """One span as a repeated field of ScopeSpans."""
    rest = span_head(span.name, span.kind) + span_attributes(span.attributes)
    if span.status_code:
        rest += encode_status(span.status_code, span.status_message)
    if span.trace_state:
        rest += block(0x1A, _text(span.trace_state))
    for link in span.links:
        rest += encode_link(*link)
    for event in span.events:
        rest += encode_event(*event)
    identity = span_identity(span.trace_id, span.parent_span_id)
    return encode_span_fields(identity, span.span_id, span.start_unix_ns, span.end_unix_ns, rest)


def encode_resource(resource: Attributes) -> bytes:
    """The `resource` field of ResourceSpans and ResourceMetrics."""
    return block(0x0A, encode_attributes(resource, 0x0A))


def encode_scope(name: str, attributes: Attributes | None = None, version: str = VERSION) -> bytes:
    """The `scope` field of ScopeSpans and ScopeMetrics."""
    body = block(0x0A, _text(name)) + block(0x12, _text(version))
    return block(0x0A, body + encode_attributes(attributes or {}, 0x1A))


def encode_traces(
    resource: Attributes,
    spans: Iterable[SpanData],
    *,
    scope: str = "tailtrace",
    scope_attributes: Attributes | None = None,
) -> bytes:
    """One ExportTraceServiceRequest of one resource and one scope."""
    return join_traces(
        encode_resource(resource), [(encode_scope(scope, scope_attributes), b"".join(map(encode_span, spans)))]
    )


def join_traces(resource: bytes, scopes: Iterable[tuple[bytes, bytes]]) -> bytes:
    """One request from encoded parts: a resource, and for each scope its field and its spans' fields."""
    return block(0x0A, resource + b"".join([block(0x12, scope + spans) for scope, spans in scopes]))


_metric_heads: dict[tuple[str, str], bytes] = {}


def _metric_head(name: str, unit: str) -> bytes:
    head = block(0x0A, _text(name)) + block(0x1A, _text(unit))
    if len(_metric_heads) < _CACHE_LIMIT:
        _metric_heads[name, unit] = head
    return head


EncodedPoints = dict[tuple[str, str, str], list[bytes]]
"""Data points as repeated fields, by the name, unit and kind of their metric."""


def encode_points(points: Iterable[Point]) -> EncodedPoints:
    """Points, encoded but for what those of one metric share."""
    metrics: EncodedPoints = {}
    # Points of one series usually share their attributes' dictionary; points are kept, so that no identity comes twice.
    points = list(points)
    made_labels: dict[int, Labels] = {}
    for point in points:
        labels = point.attributes
        if type(labels) is not Labels:
            identity = id(labels)
            labels = made_labels.get(identity) or Labels(labels)
            made_labels[identity] = labels
        value, start, time = point.value, point.start_unix_ns, point.time_unix_ns
        if isinstance(value, int) and _INT64_MIN <= value <= _INT64_MAX:
            if start:
                data = labels.started_head + _started_int(0x11, start, 0x19, time, 0x31, value)
            else:
                data = labels.head + _timed_int(0x19, time, 0x31, value)
        elif start:
            data = labels.started_head + _started_double(0x11, start, 0x19, time, 0x21, float(value))
        else:
            data = labels.head + _timed_double(0x19, time, 0x21, float(value))
        try:
            metrics[point.name, point.unit, point.kind].append(data)
        except KeyError:
            metrics[point.name, point.unit, point.kind] = [data]
    return metrics


def join_metrics(resource: Attributes, parts: Iterable[EncodedPoints], *, scope: str = "tailtrace") -> bytes:
    """One ExportMetricsServiceRequest of one resource and one scope; points of one name become one metric."""
    metrics: EncodedPoints = {}
    for part in parts:
        for key, made in part.items():
            metrics.setdefault(key, []).extend(made)
    encoded = []
    for (name, unit, kind), made in metrics.items():
        head = _metric_heads.get((name, unit)) or _metric_head(name, unit)
        if kind == "sum":
            # aggregation_temporality = cumulative, is_monotonic = true
            encoded.append(block(0x12, head + block(0x3A, b"".join(made) + b"\x10%c\x18\x01" % _CUMULATIVE)))
        else:
            encoded.append(block(0x12, head + block(0x2A, b"".join(made))))
    return block(0x0A, encode_resource(resource) + block(0x12, encode_scope(scope) + b"".join(encoded)))


def encode_metrics(resource: Attributes, points: Iterable[Point], *, scope: str = "tailtrace") -> bytes:
    """`join_metrics` of `encode_points`, for points that are all at hand."""
    return join_metrics(resource, [encode_points(points)], scope=scope)

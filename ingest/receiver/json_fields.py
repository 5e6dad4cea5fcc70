"""Fields of OTLP/JSON as fields of protobuf: each function encodes one value under its field number.

An encoder raises BadItem for what it cannot read, which costs the span, point or record that holds it. An attribute
value that does not fit its declared type is kept as the text that was sent.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable
from typing import Any, Final

import orjson

from tailtrace.ingest.receiver.checks.values import CUT
from tailtrace.ingest.receiver.checks.wire import FIXED32, FIXED64, length_field, varint, varint_field

NESTING: Final = 40
"""Levels of an attribute value that are converted; the check cuts, and counts, what is deeper than its own limit."""

_INT64: Final = 1 << 63


class BadItem(ValueError):
    """One span, data point or log record that cannot be read; `kind` is the name it is counted under."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def text_field(number: int, value: Any, name: str) -> bytes:
    if isinstance(value, dict | list):
        raise BadItem("bad_field", f"{name} is {type(value).__name__}, expected a string")
    return length_field(number, _as_text(value))


def hex_field(number: int, value: Any, name: str) -> bytes:
    kind = "bad_trace_id" if name == "traceId" else "bad_span_id"
    if not isinstance(value, str):
        raise BadItem(kind, f"{name} is {type(value).__name__}, expected hex digits")
    try:
        identifier = bytes.fromhex(value)
    except ValueError:
        identifier = b""
    if len(value) != 2 * len(identifier):
        shown = value[:64].encode("ascii", "replace").decode()
        hint = " (base64 is for other fields: OTLP/JSON ids are hex)" if value.endswith("=") else ""
        raise BadItem(kind, f"{name} {shown!r} is not hex digits{hint}")
    return length_field(number, identifier)


def parent_field(number: int, value: Any, name: str) -> bytes:
    try:
        return hex_field(number, value, name)
    except BadItem:
        return length_field(number, b"\0")  # of a length that the check drops and counts


def _integer(value: Any, name: str) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise BadItem("bad_field", f"{name} is {value[:40]!r}, expected a whole number") from None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise BadItem("bad_field", f"{name} is {type(value).__name__}, expected a whole number")
    return value


def fixed64_field(number: int, value: Any, name: str) -> bytes:
    whole = _integer(value, name)
    if not -_INT64 <= whole < 2 * _INT64:
        raise BadItem("bad_field", f"{name} is {str(whole)[:40]}, which does not fit 64 bits")
    return varint(number << 3 | FIXED64) + struct.pack("<Q", whole & (2 * _INT64 - 1))


def double_field(number: int, value: Any, name: str) -> bytes:
    try:
        return varint(number << 3 | FIXED64) + struct.pack("<d", float(value))
    except (TypeError, ValueError, OverflowError):
        raise BadItem("bad_field", f"{name} is {str(value)[:40]!r}, expected a number") from None


def bool_field(number: int, value: Any, name: str) -> bytes:
    return varint_field(number, 1 if value is True or value == "true" else 0)


def uint_field(number: int, value: Any, name: str) -> bytes:
    return varint_field(number, _integer(value, name))


def zigzag_field(number: int, value: Any, name: str) -> bytes:
    whole = _integer(value, name)
    return varint_field(number, (whole << 1) ^ (whole >> 63))


def fixed32_field(number: int, value: Any, name: str) -> bytes:
    return varint(number << 3 | FIXED32) + struct.pack("<I", _integer(value, name) & 0xFFFF_FFFF)


def _packed(number: int, value: Any, name: str, one: Callable[[Any, str], bytes]) -> bytes:
    if not isinstance(value, list):
        raise BadItem("bad_field", f"{name} is {type(value).__name__}, expected a list")
    return length_field(number, b"".join(one(each, name) for each in value)) if value else b""


def fixed64s_field(number: int, value: Any, name: str) -> bytes:
    return _packed(number, value, name, lambda each, of: fixed64_field(number, each, of)[1:])


def doubles_field(number: int, value: Any, name: str) -> bytes:
    return _packed(number, value, name, lambda each, of: double_field(number, each, of)[1:])


def varints_field(number: int, value: Any, name: str) -> bytes:
    return _packed(number, value, name, lambda each, of: varint(_integer(each, of)))


def value_field(number: int, value: Any, name: str) -> bytes:
    return length_field(number, any_value(value, NESTING))


def enum_field(prefix: str, *names: str) -> Callable[[int, Any, str], bytes]:
    numbers = {name: number for number, name in enumerate(names)}

    def encode(number: int, value: Any, name: str) -> bytes:
        if isinstance(value, str):
            known = numbers.get(value.removeprefix(prefix))
            if known is not None:
                return varint_field(number, known)
        return varint_field(number, _integer(value, name))

    return encode


def any_value(value: Any, depth: int) -> bytes:
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
                    return text_field(1, content, name)
                case "boolValue":
                    return bool_field(2, content, name)
                case "intValue":
                    whole = _integer(content, name)
                    if not -_INT64 <= whole < _INT64:
                        return length_field(1, _as_text(content))
                    return varint_field(3, whole)
                case "doubleValue":
                    return double_field(4, content, name)
                case "bytesValue":
                    return length_field(7, base64.b64decode(content, validate=True))
                case "arrayValue":
                    items = (length_field(1, any_value(each, depth - 1)) for each in content.get("values") or ())
                    return length_field(5, b"".join(items))
                case "kvlistValue":
                    pairs = (
                        length_field(
                            1,
                            text_field(1, each.get("key", ""), "key")
                            + length_field(2, any_value(each.get("value"), depth - 1)),
                        )
                        for each in content.get("values") or ()
                    )  # fmt: skip
                    return length_field(6, b"".join(pairs))
        except (BadItem, AttributeError, TypeError, binascii.Error, ValueError):
            return length_field(1, _as_text(content))
    return b""


def _as_text(value: Any) -> bytes:
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).encode()
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        try:
            return utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        except (ValueError, RecursionError):
            return CUT.encode()

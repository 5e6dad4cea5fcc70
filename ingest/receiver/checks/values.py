"""Attribute values that the store's columns cannot hold, as compact JSON text.

Key-value lists, arrays in arrays, and bytes: typed nesting makes the store's view many times slower and loses what is
deeper, so they become a string at the door. Bytes are base64, as in protobuf's own JSON.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

from tailtrace.ingest.receiver.checks.wire import FIXED64, LENGTH, VARINT, WireError, fields, read_varint

CUT = "[cut: nested too deeply]"


def as_json(data: bytes, at: int, end: int, depth: int) -> tuple[str, bool]:
    """The AnyValue in data[at:end] as text, and whether something deeper than `depth` was cut. Raises WireError."""
    renderer = _Renderer(data)
    value = renderer.value(at, end, depth)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text, renderer.cut


class _Renderer:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.cut = False

    def value(self, at: int, end: int, depth: int) -> Any:
        data = self._data
        value: Any = None
        for number, wire, _, start, stop in fields(data, at, end):
            if number == 1 and wire == LENGTH:
                value = data[start:stop].decode("utf-8", "replace")
            elif number == 2 and wire == VARINT:
                value = read_varint(data, start, stop)[0] != 0
            elif number == 3 and wire == VARINT:
                unsigned = read_varint(data, start, stop)[0]
                value = unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned
            elif number == 4 and wire == FIXED64:
                double = struct.unpack_from("<d", data, start)[0]
                value = double if math.isfinite(double) else str(double)
            elif number == 7 and wire == LENGTH:
                value = base64.b64encode(data[start:stop]).decode()
            elif number in (5, 6) and wire == LENGTH:
                if depth <= 0:
                    self.cut = True
                    value = CUT
                elif number == 5:
                    value = self._array(start, stop, depth - 1)
                else:
                    value = self._object(start, stop, depth - 1)
            elif number < 8:
                raise WireError(f"field {number} of an attribute's value has wire type {wire}")
        return value

    def _array(self, at: int, end: int, depth: int) -> list[Any]:
        return [
            self.value(start, stop, depth)
            for number, wire, _, start, stop in fields(self._data, at, end)
            if number == 1 and wire == LENGTH
        ]

    def _object(self, at: int, end: int, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for number, wire, _, start, stop in fields(self._data, at, end):
            if number != 1 or wire != LENGTH:
                continue
            key, value = "", None
            for part, part_wire, _, low, high in fields(self._data, start, stop):
                if part == 1 and part_wire == LENGTH:
                    key = self._data[low:high].decode("utf-8", "replace")
                elif part == 2 and part_wire == LENGTH:
                    value = self.value(low, high, depth)
            out[key] = value
        return out

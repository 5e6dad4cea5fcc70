"""The protobuf wire format, as far as the doors need it in Python."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are no protobuf message."""


def varint(value: int) -> bytes:
    """The varint of a number; negative ones as their 64-bit two's complement, as int32 and int64 are sent."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_field(number: int, payload: bytes) -> bytes:
    """A length-delimited field: text, bytes or a message."""
    return varint(number << 3 | LENGTH) + varint(len(payload)) + payload


def varint_field(number: int, value: int) -> bytes:
    """A varint field: bool, enum or integer."""
    return varint(number << 3 | VARINT) + varint(value)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The unsigned varint at `at`, and where it ends. Raises WireError past `end` or after ten bytes."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF_FFFF_FFFF:
                break
            return value, at
        shift += 7
        if shift > 63:
            break
    raise WireError(f"bad varint before byte {at}")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, wire type, start of the tag, start of the payload, end) of each field in data[at:end]."""
    while at < end:
        start = at
        tag, at = read_varint(data, at, end)
        wire = tag & 7
        if wire == LENGTH:
            length, at = read_varint(data, at, end)
            stop = at + length
        elif wire == VARINT:
            _, stop = read_varint(data, at, end)
        elif wire == FIXED64:
            stop = at + 8
        elif wire == FIXED32:
            stop = at + 4
        else:
            raise WireError(f"wire type {wire} at byte {start}")
        if stop > end or tag < 8:
            raise WireError(f"bad field at byte {start}")
        yield tag >> 3, wire, start, at, stop
        at = stop

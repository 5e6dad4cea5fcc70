"""Length-delimited protobuf: each body preceded by its length as a varint. The form that the engine reads as rows."""

from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

_MAX_VARINT_BYTES = 10


def frame(body: bytes) -> bytes:
    """The length that goes before `body` in a segment."""
    length = len(body)
    out = bytearray()
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out)


def spans_of_bodies(path: Path) -> Iterator[tuple[int, int]]:
    """(start, end) of each whole body in the file, in order; stops before a torn last one."""
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        position, size = 0, len(data)
        while position < size:
            length = shift = 0
            start = position
            while True:
                if start >= size or start - position >= _MAX_VARINT_BYTES:
                    return
                byte = data[start]
                length |= (byte & 0x7F) << shift
                start += 1
                shift += 7
                if byte < 0x80:
                    break
            if start + length > size:
                return
            yield start, start + length
            position = start + length


def read_bodies(path: Path) -> Iterator[bytes]:
    """The whole bodies of the file, in order."""
    with path.open("rb") as file:
        for start, end in spans_of_bodies(path):
            file.seek(start)
            yield file.read(end - start)

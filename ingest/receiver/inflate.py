"""Decompression that stops at a limit, whatever the body claims about itself."""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from tailtrace.errors import Rejected, TooLarge

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

_STEP: Final = 1024 * 1024
_LARGE: Final = 4 * _STEP
# Bodies that are large and within the limit are held one at a time.
_large_slot = threading.Lock()


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def _gzip() -> _Decompressor:
    return zlib.decompressobj(wbits=31)


def _rest(member: _Decompressor) -> bytes:
    """Input that the last step left for the next one; zstd keeps its own."""
    return getattr(member, "unconsumed_tail", b"")


_MAKERS: Final[dict[str, Callable[[], _Decompressor]]] = {"gzip": _gzip, "zstd": ZstdDecompressor}
ENCODINGS: Final = ("identity", *_MAKERS)
"""Values of Content-Encoding that are understood."""


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """The decompressed body, of any number of members. Raises TooLarge past `limit` bytes, Rejected if damaged."""
    parts: list[bytes] = []
    size = 0
    large = False
    try:
        for part in _pieces(body, encoding):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            if size > _LARGE and not large:
                # Measured before it is kept: a bomb costs time, but no memory.
                _measure(body, encoding, limit)
                large = _large_slot.acquire()
    except (zlib.error, ZstdError) as error:
        raise Rejected(f"the body is not {encoding}, which its Content-Encoding says it is: {error}") from error
    finally:
        if large:
            _large_slot.release()
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _measure(body: bytes, encoding: str, limit: int) -> None:
    size = 0
    for part in _pieces(body, encoding):
        size += len(part)
        if size > limit:
            raise _too_large(limit)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes when decompressed; send smaller batches")


def _pieces(body: bytes, encoding: str) -> Iterator[bytes]:
    """The decompressed body in steps of at most a mebibyte."""
    while body:
        member = _MAKERS[encoding]()
        data = body
        while True:
            part = member.decompress(data, _STEP)
            yield part
            if member.eof:
                break
            data = _rest(member)
            if not part and not data:
                raise Rejected(f"the {encoding} body ends too early")
        body = member.unused_data

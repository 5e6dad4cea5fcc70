"""Bodies that were accepted lately, so that a sender's retry of one is acknowledged and not stored again.

A sender repeats a body when the answer got lost. The repeat is byte for byte the same, so its digest tells it. Digests
of stored bodies are kept in a file for as long as senders retry, so that also a restart in between doubles nothing.
"""

import errno
import hashlib
import logging
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

log = logging.getLogger(__name__)

WINDOW_S = 600
MOST = 250_000
_RECORD = struct.Struct("<I16s")
_COMPACT_BYTES = 8 * 1024 * 1024


def digest(body: bytes) -> bytes:
    """16 bytes that stand for a body."""
    return hashlib.blake2b(body, digest_size=16).digest()


class RecentDeliveries:
    """Digests of the last ten minutes (at most 250,000), in memory and, once stored, in a file. Not thread-safe."""

    def __init__(self, path: Path, unix_time: Callable[[], float] = time.time) -> None:
        """Load the digests of `path` that are still young."""
        self._path = path
        self._time = unix_time
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        if path.exists():
            data = path.read_bytes()
            whole = data[: len(data) - len(data) % _RECORD.size]
            for stored_at, key in _RECORD.iter_unpack(whole):
                self._seen[key] = stored_at
            if len(whole) < len(data):
                os.truncate(path, len(whole))
        try:
            self._compact()
        except OSError as error:  # a full disk is no reason not to start; the file as it is will do
            log.info("%s stays as it is: %s", path, error)

    def __contains__(self, key: bytes) -> bool:
        return key in self._seen

    def add(self, keys: Iterable[bytes]) -> None:
        """Remember accepted bodies."""
        now = int(self._time())
        for key in keys:
            self._seen[key] = now
            self._seen.move_to_end(key)
        self._forget(now)

    def keep(self, keys: Iterable[bytes]) -> None:
        """Write down bodies whose segment is about to be removed from the journal."""
        now = int(self._time())
        with self._path.open("ab", buffering=0) as file:
            size = file.tell()
            records = b"".join(_RECORD.pack(now, key) for key in keys)
            if file.write(records) != len(records):  # a full disk: half a record would make nonsense of all behind it
                file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        if size + len(records) > _COMPACT_BYTES:
            self._compact()

    def _forget(self, now: int) -> None:
        while self._seen:
            key, accepted_at = next(iter(self._seen.items()))
            if accepted_at >= now - WINDOW_S and len(self._seen) <= MOST:
                return
            del self._seen[key]

    def _compact(self) -> None:
        self._forget(int(self._time()))
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_bytes(b"".join(_RECORD.pack(at, key) for key, at in self._seen.items()))
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

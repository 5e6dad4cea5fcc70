"""Small files of /proc and /sys that are read again and again: kept open, read from the start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 65536


class KeptFile:
    """`read` gives the whole content, or None where the file cannot be read (then `reason` says why)."""

    __slots__ = ("_descriptor", "_path", "reason")

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._descriptor = -1
        self.reason: str | None = None

    def read(self) -> bytes | None:
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            content = os.pread(self._descriptor, _MOST_BYTES, 0)
        except OSError as error:
            self.close()
            self.reason = reason_of(error)
            return None
        self.reason = None
        return content

    @property
    def descriptor(self) -> int:
        """The open file, or -1 while it has not been read."""
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def content_of(path: str) -> bytes | None:
    """A file that is read once, at most 64 KiB of it; None where it cannot be read.

    A host has thousands of processes: by pathlib and a buffered file each would cost four times as much.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, _MOST_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def reason_of(error: OSError) -> str:
    """The word sent as `tailtrace.reason`."""
    if isinstance(error, FileNotFoundError):
        return "no_file"
    if isinstance(error, PermissionError):
        return "no_permission"
    if isinstance(error, ProcessLookupError):
        return "gone"
    return "not_supported"

"""One owner of a data directory: a lock file that names the owner's process."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tailtrace.errors import StoreLocked


class DirectoryLock:
    """Held until `release` or the death of the process: the kernel frees it, so it is never stale."""

    def __init__(self, directory: Path) -> None:
        """Take the lock of `directory`; StoreLocked at once, with path and pid, when another process has it."""
        self.path = directory / "owner.lock"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise StoreLocked(
                f"the data directory {directory} is in use by another process (pid {owner}): "
                "stop that one, or give this one its own --data"
            ) from None
        with suppress(OSError):  # the kernel holds the lock; that a full disk has no room for the pid does not matter
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let another process have the directory."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

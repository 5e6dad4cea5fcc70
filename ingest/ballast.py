"""Room kept on the disk for the moment at which there is none: even dropping data takes the engine a mebibyte."""

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

BYTES: Final = 4 * 1024 * 1024
_PLENTY: Final = 8
_NAME: Final = "ballast"


class Ballast:
    """A file in the data directory that is let go when the disk is full, and put back when there is room."""

    def __init__(self, data: Path) -> None:
        self._path = data / _NAME

    def keep(self) -> None:
        """Have it in place, if the disk has room for it."""
        if self._path.exists() and self._path.stat().st_size == BYTES:
            return
        try:
            if shutil.disk_usage(self._path.parent).free < _PLENTY * BYTES:
                return  # what was just freed is wanted elsewhere
            with self._path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, BYTES)
        except OSError as error:
            log.info("no room is kept on the disk: %s", error)
            self.release()

    def release(self) -> bool:
        """Let it go; whether there was any."""
        with suppress(FileNotFoundError):
            self._path.unlink()
            return True
        return False

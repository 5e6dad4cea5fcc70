"""The journal: what was acknowledged and is not yet known to be stored.

One sequence of append-only segments a signal, `journal/<signal>/<owner>-<sequence>.otlp`, each a run of bodies,
length-delimited. A segment is open, then sealed, then removed once the store has it. Its name is its deduplication
token, so names are never used twice: every start takes a new owner uuid.
"""

import os
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtrace.ingest.framing import frame, spans_of_bodies
from tailtrace.ingest.store.protocol import Signal

SUFFIX = ".otlp"
_NAME = re.compile(r"[0-9a-f]{32}-(\d{10})\.otlp\Z")


@dataclass(slots=True)
class Segment:
    """One file of the journal. `items` is 0 where it was not counted (a segment of an earlier start)."""

    signal: Signal
    path: Path
    bodies: int = 0
    items: int = 0
    bytes: int = 0
    left_over: bool = False
    """Of an earlier start: it may have been tried, and stored, at any time before."""

    @property
    def id(self) -> str:
        return self.path.stem

    def remove(self) -> None:
        """Forget the segment: the store has it."""
        self.path.unlink(missing_ok=True)


class Journal:
    """The segments of one signal. One thread appends and seals; any thread may remove a sealed segment."""

    def __init__(self, directory: Path, signal: Signal) -> None:
        """Open `directory`, which becomes the home of one signal's segments."""
        self.signal: Signal = signal
        self.directory = directory
        self._owner = uuid.uuid4().hex
        directory.mkdir(parents=True, exist_ok=True)
        self._left_over = sorted((int(m[1]), p) for p in directory.iterdir() if (m := _NAME.match(p.name)))
        self._next = self._left_over[-1][0] + 1 if self._left_over else 0
        self._file = -1
        self._torn = False
        self.active = Segment(signal, directory)

    def recover(self) -> list[Segment]:
        """Segments of earlier starts in the order written, cut after their last whole body; empty ones are removed."""
        segments = []
        for _, path in self._left_over:
            ends = [end for _, end in spans_of_bodies(path)]
            count, end = len(ends), ends[-1] if ends else 0
            if count == 0:
                path.unlink()
                continue
            if end < path.stat().st_size:
                os.truncate(path, end)
            segments.append(Segment(self.signal, path, bodies=count, bytes=end, left_over=True))
        self._left_over = []
        return segments

    def append(self, bodies: Sequence[bytes], items: int) -> None:
        """Write bodies to the open segment; when this returns they survive a crash and a power failure.

        Raises OSError (disk full, I/O error) with none of them in the journal.
        """
        if self._file < 0:
            self._open()
        data = b"".join(part for body in bodies for part in (frame(body), body))
        if self._torn:
            self._cut()
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
            os.fdatasync(self._file)
        except OSError:
            self._torn = True  # until it is cut: nothing may be written behind half a record
            self._cut()
            raise
        self.active.bodies += len(bodies)
        self.active.items += items
        self.active.bytes += len(data)

    def seal(self) -> Segment | None:
        """Close the open segment and hand it over; None when it holds nothing."""
        segment = self.active
        if self._file >= 0:
            if self._torn:
                self._cut()
            os.close(self._file)
            self._file = -1
            self.active = Segment(self.signal, self.directory)
            if segment.bodies == 0:
                segment.remove()
        return segment if segment.bodies else None

    def _cut(self) -> None:
        os.ftruncate(self._file, self.active.bytes)
        self._torn = False

    def _open(self) -> None:
        path = self.directory / f"{self._owner}-{self._next:010d}{SUFFIX}"
        self._next += 1
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.active = Segment(self.signal, path)
        try:
            folder = os.open(self.directory, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError:  # its name may not survive: nothing may be acknowledged in it
            os.close(self._file)
            self._file = -1
            path.unlink(missing_ok=True)
            raise

"""Moves sealed segments of one signal into the store, in order, each exactly once.

A segment is inserted whole under its id as deduplication token. When the store is gone or short of something, the same
segment is tried again, later and later. When it refuses the content, the segment is halved until the bad body stands
alone; that one is put aside in `refused/` and counted, the rest is stored.
"""

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from tailtrace.errors import StoreDead, StoreError
from tailtrace.ingest.framing import frame, read_bodies
from tailtrace.ingest.journal import Segment
from tailtrace.ingest.partly_stored import without_stored_spans
from tailtrace.ingest.store.protocol import Store
from tailtrace.ingest.token_window import TokenWindow

log = logging.getLogger(__name__)

MOST_REFUSED = 100  # bodies kept to be looked at; older ones make room
_NAME = re.compile(r"\(([A-Z][A-Z_0-9]+)\)")

# Errors that say nothing about the content: the engine could not take anything just then, or not from us.
_NOT_CONTENT = frozenset(
    {
        *("TIMEOUT_EXCEEDED", "SOCKET_TIMEOUT", "NETWORK_ERROR", "DNS_ERROR", "ALL_CONNECTION_TRIES_FAILED"),
        *("MEMORY_LIMIT_EXCEEDED", "CANNOT_ALLOCATE_MEMORY", "NOT_ENOUGH_SPACE", "CANNOT_SCHEDULE_TASK"),
        *("TOO_MANY_PARTS", "TOO_MANY_SIMULTANEOUS_QUERIES", "QUOTA_EXCEEDED", "NO_FREE_CONNECTION"),
        *("ABORTED", "QUERY_WAS_CANCELLED", "UNKNOWN_STATUS_OF_INSERT", "KEEPER_EXCEPTION", "SYSTEM_ERROR"),
        *("READONLY", "TABLE_IS_READ_ONLY", "ACCESS_DENIED", "AUTHENTICATION_FAILED", "SUPPORT_IS_DISABLED"),
        *("UNKNOWN_TABLE", "UNKNOWN_DATABASE", "UNKNOWN_SETTING", "CANNOT_OPEN_FILE", "FILE_DOESNT_EXIST"),
        *("CANNOT_READ_FROM_FILE_DESCRIPTOR", "CANNOT_WRITE_TO_FILE_DESCRIPTOR", "POCO_EXCEPTION", "STD_EXCEPTION"),
    }
)
_MEMORY = "MEMORY_LIMIT_EXCEEDED"
_MEMORY_TRIES = 12
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 10.0


class Inserter:
    """A queue of segments and the thread that empties it."""

    def __init__(self, store: Store, refused: Path, done: Callable[[Segment], None]) -> None:
        """Bodies that the store refuses go to the folder `refused`; `done` is called in order for each segment."""
        self._store = store
        self._refused = refused
        self._done = done
        self._window = TokenWindow(store)
        self._queue: deque[Segment] = deque()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.refused_bodies = 0
        self.failures = 0
        self.last_error = ""
        self.failed_tries = 0  # in a row; 0 once one succeeds

    def start(self, name: str) -> None:
        """Run the thread."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, segment: Segment) -> None:
        """Queue a sealed segment."""
        with self._changed:
            self._queue.append(segment)
            self._changed.notify()

    def waiting(self) -> int:
        """Segments queued or being inserted."""
        return len(self._queue)

    @property
    def failing(self) -> bool:
        """Since the last try, until one succeeds."""
        return self.failed_tries > 0

    def stop(self, timeout_s: float) -> None:
        """Finish the queue, for at most `timeout_s`; what is left stays in the journal."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue, timeout_s)
            self._stopping.set()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s + 60)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping.is_set())
                if self._stopping.is_set():
                    return
                segment = self._queue[0]
            if not self._insert_until_stored(segment):
                return
            with self._changed:
                self._queue.popleft()
            try:
                self._done(segment)
            except Exception:
                log.exception("segment %s is stored, but that could not be noted", segment.id)
            with self._changed:
                self._changed.notify_all()

    def _insert_until_stored(self, segment: Segment) -> bool:
        """False when stopped before the segment was stored."""
        wait_s = _FIRST_WAIT_S
        tries = 0
        while not self._stopping.is_set():
            tries += 1
            try:
                self._insert(segment, spare_memory=tries < _MEMORY_TRIES)
                self.failed_tries = 0
                if segment.signal == "traces" and not segment.left_over:
                    self._window.note(segment.path.parent)
                return True
            except StoreDead:
                return False
            except Exception as error:  # whatever it is, a thread that ended would store nothing any more
                if not isinstance(error, StoreError | OSError):
                    log.exception("inserting failed in a way that was not expected")
                self.failures += 1
                self.last_error = str(error)
                self.failed_tries = tries
                log.warning("segment %s is not stored yet, next try in %.1f s: %s", segment.id, wait_s, error)
            self._stopping.wait(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
        return False

    def _insert(self, segment: Segment, spare_memory: bool) -> None:
        if segment.left_over and segment.signal == "traces" and not self._window.holds(segment.path.parent):
            bodies = list(read_bodies(segment.path))
            rest = without_stored_spans(self._store, bodies)
            if rest != bodies:
                self._insert_part(segment, rest, 0, spare_memory)
                return
        try:
            self._store.insert_segment(segment.signal, segment.path, segment.id)
        except StoreDead:
            raise
        except StoreError as error:
            if not blames_content(error, spare_memory):
                raise
            bodies = list(read_bodies(segment.path))
            log.warning(
                "segment %s of %d bodies is refused and will be taken apart: %s", segment.id, len(bodies), error
            )
            self._insert_halves(segment, bodies, 0, error, spare_memory)

    def _insert_part(self, segment: Segment, bodies: Sequence[bytes], first: int, spare_memory: bool) -> None:
        """Insert bodies `first`... of the segment; splits are the same at every try, so their tokens are too."""
        part = segment.path.with_suffix(".part")
        part.write_bytes(b"".join(piece for body in bodies for piece in (frame(body), body)))
        try:
            self._store.insert_segment(segment.signal, part, f"{segment.id}/{first}-{first + len(bodies)}")
        except StoreDead:
            raise
        except StoreError as error:
            if not blames_content(error, spare_memory):
                raise
            self._insert_halves(segment, bodies, first, error, spare_memory)
        finally:
            part.unlink(missing_ok=True)

    def _insert_halves(
        self, segment: Segment, bodies: Sequence[bytes], first: int, error: StoreError, spare_memory: bool
    ) -> None:
        if len(bodies) <= 1:
            self._refuse(segment, bodies, first, error)
            return
        if segment.signal == "traces":  # the attempt that failed may have left some in the store
            bodies = without_stored_spans(self._store, bodies)
        middle = len(bodies) // 2
        self._insert_part(segment, bodies[:middle], first, spare_memory)
        self._insert_part(segment, bodies[middle:], first + middle, spare_memory)

    def _refuse(self, segment: Segment, bodies: Sequence[bytes], first: int, error: StoreError) -> None:
        self._refused.mkdir(parents=True, exist_ok=True)
        for body in bodies:
            path = self._refused / f"{segment.signal}-{segment.id}-{first}.pb"
            if not path.exists():
                self.refused_bodies += 1
                for oldest in sorted(self._refused.iterdir(), key=lambda p: p.stat().st_mtime)[: -MOST_REFUSED + 1]:
                    oldest.unlink()
                path.write_bytes(body)
            log.error("a body of %d bytes is refused by the store and kept in %s: %s", len(body), path, error)


def blames_content(error: StoreError, spare_memory: bool) -> bool:
    """Whether the store refuses what it was given, rather than being unable to take anything."""
    match = _NAME.search(str(error))
    if match is None:
        return False
    if match[1] == _MEMORY and not spare_memory:
        return True
    return match[1] not in _NOT_CONTENT

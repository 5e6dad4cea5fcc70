"""From a checked OTLP body to rows: journal it, answer, insert it.

One thread writes the journals. It takes every body that waits, writes them in one go and answers all of them after one
fsync, so the cost of durability is shared by all senders of that moment. Each signal has an inserter of its own behind.

An insert costs about 40 ms however small it is, so segments should be big; a quiet system should answer at once. Both
follow from one rule: a segment is sealed when it is full, or when the inserter is idle and either 25,000 items wait or
its last insert began over a second ago. While the inserter is busy segments grow, so a system that falls behind becomes
cheaper per item.

The journal takes spans several times faster than the engine inserts them. While a healthy store works on full segments,
senders are answered at its pace, so that what was just sent can be looked at; a store that fails or stands still holds
nobody up: then the journal grows, as far as its limit.
"""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from tailtrace.errors import Overloaded, Rejected
from tailtrace.ingest.deliveries import RecentDeliveries, digest
from tailtrace.ingest.framing import frame, read_bodies
from tailtrace.ingest.inserter import Inserter
from tailtrace.ingest.journal import Journal, Segment
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store.landing import LANDINGS
from tailtrace.ingest.store.protocol import Signal, Store

log = logging.getLogger(__name__)

SEGMENT_ITEMS = 25_000
FULL_SEGMENT_ITEMS = 50_000
SEGMENT_BYTES = 16 * 1024 * 1024
INSERT_INTERVAL_S: dict[Signal, float] = {"traces": 1.0, "metrics": 2.0, "logs": 1.0}
_DISK_CHECK_INTERVAL_S = 1.0
_AFTER_FAILURE_S = 0.2
PACED_SEGMENTS = 2
HOPELESS_TRIES = 4
"""Failures in a row, about two seconds, after which a start does not wait for what is left of earlier ones."""
_RECOVERY_CHECK_S = 0.2
_PACE_CHECK_S = 0.25
_PACE_LIMIT_S = 3.0


class _Waiting:
    """A body on its way to the journal, and everybody who waits for it."""

    __slots__ = ("body", "futures", "items", "key", "size")

    def __init__(self, key: bytes, body: bytes, items: int) -> None:
        self.key = key
        self.body = body
        self.items = items
        self.size = len(frame(body)) + len(body)
        self.futures: list[Future[None]] = []


class _Lane:
    """One signal's journal, inserter and counters."""

    def __init__(self, store: Store, directory: Path, signal: Signal, stored: Callable[[Segment], None]) -> None:
        self.journal = Journal(directory / signal, signal)
        self.inserter = Inserter(store, directory / "refused", stored)
        self.recent = RecentDeliveries(directory / signal / "delivered")
        self.waiting: dict[bytes, _Waiting] = {}
        self.keys: dict[str, list[bytes]] = {}  # digests of the bodies in each segment that is not stored yet
        self.pending: set[bytes] = set()  # all of those: a repeat is known as one for as long as its body waits
        self.interval_s = INSERT_INTERVAL_S[signal]
        self.sealed_at = float("-inf")
        self.moved_at = float("-inf")  # when the inserter last took or finished a segment
        self.submitted = self.stored = 0  # bodies taken in, bodies that left the journal: their order is the same


class Pipeline:
    """Accepts bodies, makes them durable, and stores them in the order of acceptance per signal."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        settings: ServerSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`directory` holds the journal; nothing runs before `start`."""
        self._directory = directory
        self._settings = settings
        self._clock = clock
        directory.mkdir(parents=True, exist_ok=True)
        self._changed = threading.Condition()
        self._lanes: dict[Signal, _Lane] = {s: _Lane(store, directory, s, self._stored) for s in LANDINGS}
        self._counts: Counter[str] = Counter()
        self._journal_bytes = 0
        self._disk_checked_at = float("-inf")
        self._disk_free = 0
        self._flushing = 0
        self._running = False
        self._writer: threading.Thread | None = None

    def start(self, recovery_wait_s: float = 60.0) -> None:
        """Take up the segments of earlier starts, then run.

        Waits until they are stored, but not longer than `recovery_wait_s`, and not for a store that keeps failing: it
        may be away, or its disk full. Senders are answered and pages shown, and the trying goes on behind.
        """
        with self._changed:
            for signal, lane in self._lanes.items():
                for segment in lane.journal.recover():
                    self._take_up(lane, segment)
                lane.inserter.start(f"insert-{signal}")
            self._running = True
            self._writer = threading.Thread(target=self._write, name="journal", daemon=True)
            self._writer.start()
            ends = time.monotonic() + recovery_wait_s
            while time.monotonic() < ends and any(
                lane.stored < lane.submitted and lane.inserter.failed_tries < HOPELESS_TRIES
                for lane in self._lanes.values()
            ):
                self._changed.wait(min(_RECOVERY_CHECK_S, recovery_wait_s))

    def submit(self, signal: Signal, body: bytes, items: int) -> "Future[None]":
        """One checked OTLP protobuf body of `items` spans or points. The future is done when the body is durable.

        Raises Overloaded when it cannot be taken now. A body that was accepted within the last ten minutes is a
        sender's retry: it is acknowledged and not stored again.
        """
        future: Future[None] = Future()
        if not body:
            future.set_result(None)
            return future
        if signal not in self._lanes:
            raise Rejected(f"{signal} are not stored by this release; stored are {', '.join(self._lanes)}")
        key = digest(body)
        with self._changed:
            lane = self._lanes[signal]
            if not self._running:
                raise Overloaded("the receiver is not running")
            if key in lane.pending or key in lane.recent:
                self._counts["repeated_bodies"] += 1
                future.set_result(None)
                return future
            waiting = lane.waiting.get(key)
            if waiting is None:
                self._check_room(len(body))
                waiting = lane.waiting[key] = _Waiting(key, body, items)
                self._journal_bytes += waiting.size
                lane.submitted += 1
                self._changed.notify_all()
            else:
                self._counts["repeated_bodies"] += 1
            waiting.futures.append(future)
        return future

    def flush(self, timeout_s: float = 30.0) -> None:
        """Wait until everything submitted so far is in the store; TimeoutError otherwise."""
        with self._changed:
            goals = {signal: lane.submitted for signal, lane in self._lanes.items()}
            self._flushing += 1
            self._changed.notify_all()
            try:
                done = self._changed.wait_for(
                    lambda: all(self._lanes[signal].stored >= goal for signal, goal in goals.items()), timeout_s
                )
            finally:
                self._flushing -= 1
        if not done:
            errors = [lane.inserter.last_error for lane in self._lanes.values() if lane.inserter.last_error]
            raise TimeoutError(
                f"not everything is stored after {timeout_s} s: {'; '.join(errors) or 'the store is slow'}"
            )

    def stop(self, timeout_s: float = 4.0) -> None:
        """Refuse new bodies, make accepted ones durable, store what can be stored in time; the rest at next start."""
        with self._changed:
            self._running = False
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.join(timeout_s + 10)
            self._writer = None
        for lane in self._lanes.values():
            lane.inserter.stop(timeout_s)

    def counters(self) -> dict[str, int]:
        """Counts since start, and the journal's present size."""
        with self._changed:
            lanes = self._lanes.values()
            return {
                "accepted_bodies": self._counts["accepted_bodies"],
                "accepted_items": self._counts["accepted_items"],
                "repeated_bodies": self._counts["repeated_bodies"],
                "overloaded_bodies": self._counts["overloaded_bodies"],
                "stored_items": self._counts["stored_items"],
                "stored_segments": self._counts["stored_segments"],
                "refused_bodies": sum(lane.inserter.refused_bodies for lane in lanes),
                "insert_failures": sum(lane.inserter.failures for lane in lanes),
                "writer_failures": self._counts["writer_failures"],
                "journal_bytes": self._journal_bytes,
                "journal_bodies": sum(lane.submitted - lane.stored for lane in lanes),
                "waiting_segments": sum(lane.inserter.waiting() for lane in lanes),
            }

    def _check_room(self, size: int) -> None:
        if self._journal_bytes + size > self._settings.journal_max_bytes:
            self._counts["overloaded_bodies"] += 1
            raise Overloaded(
                f"the store is behind: {self._journal_bytes} bytes wait in the journal, the limit is "
                f"{self._settings.journal_max_bytes}; retry later"
            )
        now = self._clock()
        if now - self._disk_checked_at >= _DISK_CHECK_INTERVAL_S:
            self._disk_checked_at = now
            disk = os.statvfs(self._directory)
            self._disk_free = disk.f_bavail * disk.f_frsize
        if self._disk_free - size < self._settings.min_free_bytes:
            self._counts["overloaded_bodies"] += 1
            raise Overloaded(
                f"the disk is nearly full: {self._disk_free} bytes are free, {self._settings.min_free_bytes} are kept; "
                "free some space or lower the storage budget",
                retry_after_s=30,
            )

    def _take_up(self, lane: _Lane, segment: Segment) -> None:
        """Queue a segment of an earlier start."""
        keys = [digest(body) for body in read_bodies(segment.path)]
        lane.keys[segment.id] = keys
        lane.pending.update(keys)
        lane.submitted += segment.bodies
        self._journal_bytes += segment.bytes
        lane.inserter.put(segment)

    def _write(self) -> None:
        """The journal thread. Whatever goes wrong in a turn, the next one comes: senders wait for it."""
        while True:
            try:
                if self._turn():
                    return
            except Exception:
                log.exception("the journal's thread failed; bodies that wait are tried again")
                with self._changed:
                    self._counts["writer_failures"] += 1
                    self._changed.wait(_AFTER_FAILURE_S)

    def _turn(self) -> bool:
        """Write what waits, answer, seal what is due; True after the last turn."""
        with self._changed:
            while not self._has_work():  # the deadline is new after each event: an insert that ends makes one
                self._changed.wait(self._next_deadline_s())
            batches = [(lane, self._next_batch(lane)) for lane in self._lanes.values() if not self._paced(lane)]
        for lane, batch in batches:
            if batch:
                self._append(lane, batch)
        with self._changed:
            for lane in self._lanes.values():
                if self._seal_due(lane):
                    self._seal(lane)
            return not self._running and not any(lane.waiting for lane in self._lanes.values())

    def _has_work(self) -> bool:
        lanes = self._lanes.values()
        return not self._running or any(
            (lane.waiting and not self._paced(lane)) or self._seal_due(lane) for lane in lanes
        )

    def _paced(self, lane: _Lane) -> bool:
        """Whether bodies wait for the engine: it works, and more than one segment is before them."""
        inserter = lane.inserter
        if inserter.waiting() < PACED_SEGMENTS or inserter.failing or self._flushing or not self._running:
            return False
        return self._clock() - lane.moved_at < _PACE_LIMIT_S

    def _next_deadline_s(self) -> float | None:
        """Seconds until an open segment may be sealed for its age; None when only an event can make work."""
        waits = [
            lane.sealed_at + lane.interval_s - self._clock()
            for lane in self._lanes.values()
            if lane.journal.active.bodies and not lane.inserter.waiting()
        ]
        if any(lane.waiting for lane in self._lanes.values()):
            waits.append(_PACE_CHECK_S)  # a paced one: an insert that fails or hangs is no event
        return max(min(waits), 0.0) if waits else None

    def _next_batch(self, lane: _Lane) -> list[_Waiting]:
        """The oldest waiting bodies, as many as the open segment has room for, at least one."""
        items, size = lane.journal.active.items, lane.journal.active.bytes
        batch: list[_Waiting] = []
        for waiting in lane.waiting.values():
            batch.append(waiting)
            items += waiting.items
            size += waiting.size
            if items >= FULL_SEGMENT_ITEMS or size >= SEGMENT_BYTES:
                break
        return batch

    def _append(self, lane: _Lane, batch: list[_Waiting]) -> None:
        items = sum(waiting.items for waiting in batch)
        failure: Overloaded | None = None
        try:
            lane.journal.append([waiting.body for waiting in batch], items)
        except Exception as error:
            if not isinstance(error, OSError):
                log.exception("the journal failed")
            failure = Overloaded(f"the journal cannot be written: {error}", retry_after_s=30)
        with self._changed:
            for waiting in batch:
                del lane.waiting[waiting.key]
            if failure is None:
                keys = [waiting.key for waiting in batch]
                lane.keys.setdefault(lane.journal.active.id, []).extend(keys)
                lane.pending.update(keys)
                self._counts["accepted_bodies"] += len(batch)
                self._counts["accepted_items"] += items
            else:
                self._counts["overloaded_bodies"] += len(batch)
                lane.submitted -= len(batch)
                self._journal_bytes -= sum(waiting.size for waiting in batch)
        for waiting in batch:
            for future in waiting.futures:
                if future.set_running_or_notify_cancel():
                    if failure is None:
                        future.set_result(None)
                    else:
                        future.set_exception(failure)

    def _seal_due(self, lane: _Lane) -> bool:
        active = lane.journal.active
        if not active.bodies:
            return False
        if active.items >= FULL_SEGMENT_ITEMS or active.bytes >= SEGMENT_BYTES or self._flushing or not self._running:
            return True
        enough = active.items >= SEGMENT_ITEMS or self._clock() - lane.sealed_at >= lane.interval_s
        return enough and not lane.inserter.waiting()

    def _seal(self, lane: _Lane) -> None:
        segment = lane.journal.seal()
        if segment is not None:
            lane.sealed_at = self._clock()
            if not lane.inserter.waiting():
                lane.moved_at = lane.sealed_at
            lane.inserter.put(segment)

    def _stored(self, segment: Segment) -> None:
        """An inserter is done with a segment: only now may it leave the journal.

        A file system that refuses costs no more than memory of repeats: a segment that stays is inserted again at the
        next start, under its old token, which adds nothing.
        """
        lane = self._lanes[segment.signal]
        with self._changed:
            keys = lane.keys.pop(segment.id, [])
            lane.recent.add(keys)
            lane.pending.difference_update(keys)
            try:
                lane.recent.keep(keys)
                segment.remove()
            except OSError as error:
                log.warning("segment %s is stored, but the journal cannot be tidied: %s", segment.id, error)
            self._journal_bytes -= segment.bytes
            lane.moved_at = self._clock()
            lane.stored += segment.bodies
            self._counts["stored_items"] += segment.items
            self._counts["stored_segments"] += 1
            self._changed.notify_all()

"""Finished records on their way to the background thread: bounded in spans and bytes, oldest dropped, drops counted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.record import Record

# What a record holds in memory, roughly: measured with tracemalloc, so that the limit in bytes means something.
_RECORD_BYTES = 1200
_STAGE_BYTES = 260
_MARK_BYTES = 40


class Losses:
    """Spans lost, by reason, cumulative for this process instance."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.RLock()

    def add(self, reason: str, spans: int) -> None:
        with self._lock:
            self._counts[reason] = self._counts.get(reason, 0) + spans

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def text(self) -> str:
        """`reason:count,...` as the wire contract writes it."""
        return ",".join(f"{reason}:{count}" for reason, count in sorted(self.snapshot().items()))

    @property
    def total(self) -> int:
        return sum(self.snapshot().values())


def weigh(item: Any) -> tuple[int, int]:
    """Spans and bytes of one item."""
    if type(item) is Record:
        stages = len(item.stages)
        tail = 4096 if item.tail is not None else 0
        if item.content is not None:
            tail += item.content.size
        return 1 + stages, _RECORD_BYTES + _STAGE_BYTES * stages + _MARK_BYTES * len(item.times) + tail
    return 1, _STAGE_BYTES


class PlainBufferBase:
    """The items, how many spans and bytes they are, and how they come and go.

    The lock is reentrant because a destructor may end a stream while this very thread holds it, and it is never held
    over anything that waits. In C the interpreter's own lock does.
    """

    def __init__(
        self,
        max_spans: int,
        max_bytes: int,
        wake_spans: int,
        lose: Callable[[str, int], None],
        wake: Callable[[None], None],
        /,
    ) -> None:
        """`lose("full", spans)` tells what was dropped; `wake(None)` that `wake_spans` have come in."""
        self._items: deque[tuple[Any, int, int]] = deque()
        self._lock = threading.RLock()
        self._max_spans = max_spans
        self._max_bytes = max_bytes
        self._wake_spans = wake_spans
        self._lose = lose
        self._wake = wake
        self._woken = False
        self.spans = 0
        self.bytes = 0

    def put(self, item: Any, /) -> None:
        spans, size = weigh(item)
        with self._lock:
            self._items.append((item, spans, size))
            self.spans += spans
            self.bytes += size
            while (self.spans > self._max_spans or self.bytes > self._max_bytes) and self._items:
                _, spans, size = self._items.popleft()
                self.spans -= spans
                self.bytes -= size
                self._lose("full", spans)
            if self.spans >= self._wake_spans and not self._woken:
                self._woken = True
                self._wake(None)

    def take(self, max_spans: int, /) -> list[tuple[Any, int]]:
        """The oldest items, about `max_spans` spans of them, and how many each is."""
        taken: list[tuple[Any, int]] = []
        count = 0
        with self._lock:
            self._woken = False
            while self._items and count < max_spans:
                item, spans, size = self._items.popleft()
                self.spans -= spans
                self.bytes -= size
                count += spans
                taken.append((item, spans))
        return taken

    def clear(self) -> int:
        """Let everything go; the spans that were held."""
        with self._lock:
            lost = self.spans
            self._items.clear()
            self.spans = self.bytes = 0
        return lost


if TYPE_CHECKING or native is None:
    BufferBase = PlainBufferBase
else:
    BufferBase = native.BufferBase


class Buffer(BufferBase):
    """Holds items until the background thread takes them."""

    def __init__(self, max_spans: int, max_bytes: int, wake_spans: int, losses: Losses) -> None:
        # A SimpleQueue and not an Event: its put may be called from a destructor.
        self.wake: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        super().__init__(max_spans, max_bytes, wake_spans, losses.add, self.wake.put)
        self._losses = losses

    def drop_all(self, reason: str) -> int:
        """Give everything up; returns the spans lost."""
        lost = self.clear()
        if lost:
            self._losses.add(reason, lost)
        return lost

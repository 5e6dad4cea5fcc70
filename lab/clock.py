"""One clock for every part of the lab: events in order of time, either jumped to (virtual) or waited for (real)."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Any, Protocol

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
MICROSECOND = 1_000


class Clock(Protocol):
    """`stride` is how many equal decode steps an engine may take in one event: a virtual clock need not see each."""

    stride: int

    def now_ns(self) -> int: ...

    def at(self, when_ns: int, callback: Callable[..., None], *args: Any) -> None: ...


class VirtualClock:
    """A discrete-event clock: time is that of the event being handled. Ties run in the order they were asked for."""

    stride = 1 << 30

    def __init__(self, start_ns: int = 0) -> None:
        self._now = start_ns
        self._sequence = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def now_ns(self) -> int:
        return self._now

    def at(self, when_ns: int, callback: Callable[..., None], *args: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when_ns, self._sequence, callback, args))

    def run(self, until_ns: int) -> None:
        """Handle every event up to and including `until_ns`, then stand there."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= until_ns:
            when, _, callback, args = pop(events)
            if when > self._now:
                self._now = when
            callback(*args)
        self._now = max(self._now, until_ns)


class RealClock:
    """The running asyncio loop's time, in nanoseconds since the clock was made; one event per engine step."""

    stride = 1

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.start_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self.start_ns

    def at(self, when_ns: int, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_later(max(0, when_ns - self.now_ns()) / SECOND, callback, *args)

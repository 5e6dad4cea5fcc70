"""Watches an event loop from inside its process: how late it is, and why.

    @asynccontextmanager
    async def lifespan(app):
        with watch_loop():
            yield

A callback every 10 ms on the loop, and a thread that sleeps 50 ms at a time: about 0.1 % of a CPU. Sent once a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import Context
from types import TracebackType
from typing import Any, Final

from tailtrace.instrumentation import runtime
from tailtrace.instrumentation.loop_verdict import Window, quantile, split
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.host.files import KeptFile
from tailtrace.instrumentation.sampler.series import Series

log = logging.getLogger("tailtrace")

PERIOD_S: Final = 0.01
# A thread that asks for the interpreter makes a busy loop give way until it has run: on busy cores half a millisecond.
PROBE_S: Final = 0.05
WINDOW_S: Final = 1.0
# A fifth of a window: `end` is looked at in between.
_TICKS: Final = 4
_STATS: Final = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))


class LoopProbe:
    """`start` on the loop's own thread; `put` gets the points of each window, from the probe's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[list[Point]], None]) -> None:
        self._loop, self._put = loop, put
        self._lags: list[float] = []
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._start_ns = time.time_ns()
        self._lost_ns: dict[str, int] = {}
        self._loop_stat: KeptFile | None = None

    def start(self) -> None:
        self._loop_stat = KeptFile(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._due = self._loop.time() + PERIOD_S
        # Its own context: what the first request holds in its context variables is not held for ever.
        self._handle = self._loop.call_at(self._due, self._called, context=Context())
        self._thread = threading.Thread(target=self._run, name="tailtrace-loop-probe", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """From any thread: both sides stop at their next turn."""
        self._stop.set()

    def stop(self) -> None:
        """On the loop's thread."""
        self._stop.set()
        _watched.discard(self._loop)
        if self._handle is not None:
            self._handle.cancel()

    def __enter__(self) -> LoopProbe:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _called(self) -> None:
        """On the loop. The next one is due a period from now, however late this one was."""
        now = self._loop.time()
        self._lags.append(max(0.0, now - self._due))
        if not self._stop.is_set():
            self._due = now + PERIOD_S
            self._handle = self._loop.call_at(self._due, self._called)

    def _run(self) -> None:
        own = KeptFile(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        late: list[float] = []
        queued: list[float] = []
        stat = _schedstat(own)
        before = stat[1] if stat else None
        loop_before = _schedstat(self._loop_stat)
        began = asked = time.monotonic()
        try:
            while not self._stop.is_set() and not self._loop.is_closed():
                for now, queue_ns in _ticks(own):
                    late.append(max(0.0, now - asked - PROBE_S))
                    queued.append((queue_ns - before) / 1e9 if queue_ns is not None and before is not None else 0.0)
                    asked, before = now, queue_ns
                if asked - began >= WINDOW_S:
                    loop_now = _schedstat(self._loop_stat)
                    lags, self._lags = self._lags, []
                    self._send(asked - began, lags, late, queued, loop_before, loop_now)
                    began, loop_before = asked, loop_now
                    late, queued = [], []
        except Exception:
            log.exception("tailtrace: the loop probe ended")
        finally:
            own.close()
            if self._loop_stat is not None:
                self._loop_stat.close()

    def _send(
        self, length_s: float, lags: list[float], late: list[float], queued: list[float],
        before: tuple[int, int] | None, after: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        middle = time.time_ns() - int(length_s * 5e8)
        points: list[Point] = []
        for name, values in (("lag", lags), ("probe_late", late), ("probe_run_queue", queued)):
            if values:
                for stat, q in _STATS:
                    series = Series(f"tailtrace.host.loop.{name}", {"tailtrace.stat": stat})
                    points.append(series.point(quantile(values, q), middle))
        if before is None or after is None:
            attributes = {"tailtrace.metric": "tailtrace.host.loop.lost", "tailtrace.reason": "no_schedstat"}
            points.append(Series("tailtrace.absent", attributes).point(1, middle))
            self._put(points)
            return
        cpu, queue = ((now - then) / 1e9 / length_s for then, now in zip(before, after, strict=True))
        for kind, share in (("running", cpu), ("run_queue", queue)):
            points.append(Series("tailtrace.host.loop.cpu", {"tailtrace.kind": kind}).point(share, middle))
        for cause, seconds in split(Window(length_s, lags, late, queued, cpu, queue)).items():
            self._lost_ns[cause] = self._lost_ns.get(cause, 0) + int(seconds * 1e9)
        for cause, lost in self._lost_ns.items():
            series = Series("tailtrace.host.loop.lost", {"tailtrace.cause": cause})
            points.append(series.point(lost, middle, self._start_ns))
        self._put(points)


def _ticks(own: KeptFile) -> list[tuple[float, int | None]]:
    """Sleep for some periods: when this thread ran again after each, and its run-queue nanoseconds so far."""
    if native is not None and own.descriptor >= 0:
        # One short hold of the interpreter a tick, where Python makes two long ones: a busy loop gives way less.
        ticks: list[tuple[float, int | None]] = native.probe_ticks(PROBE_S, _TICKS, own.descriptor)
        return ticks
    time.sleep(PROBE_S)
    now, stat = time.monotonic(), _schedstat(own)
    return [(now, stat[1] if stat else None)]


def _schedstat(file: KeptFile | None) -> tuple[int, int] | None:
    content = file.read() if file is not None else None
    if not content:
        return None
    cpu, queue, _ = content.split()
    return int(cpu), int(queue)


class _Nothing:
    """What `watch_loop` gives where it cannot watch."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing was begun."""


_watched: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def _after_fork() -> None:
    """The parent's threads are not in the child."""
    _watched.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def watch_loop() -> LoopProbe | _Nothing:
    """Watch the running loop until the result's `stop`, or the end of its `with` block. Never raises.

    Call it on the loop, after `instrument()`; without either it says so in the log and watches nothing. `wrap_gateway`
    does so itself (setting `watch_loop`); a loop that is watched already is not watched twice.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        log.warning("tailtrace: watch_loop() was called outside a running event loop; nothing is watched")
        return _Nothing()
    active = runtime.active
    if active is None:
        log.warning("tailtrace: watch_loop() needs instrument() first; nothing is watched")
        return _Nothing()
    if loop in _watched:
        return _Nothing()
    try:
        probe = LoopProbe(loop, active.metrics.put)
        probe.start()
        active.at_shutdown.append(probe.end)
        _watched.add(loop)
    except Exception:
        log.exception("tailtrace: the event loop is not watched")
        return _Nothing()
    return probe

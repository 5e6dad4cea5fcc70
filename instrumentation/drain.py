"""Waits for a client that reads slowly, timed where the server waits: in the `drain` of uvicorn's flow control.

Asking before each chunk whether the next send will wait costs more than the chunk's clock read. So the class that waits
is wrapped once, and what it waits is told to the request that runs there.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any, Final

from tailtrace.instrumentation import clock
from tailtrace.instrumentation.record import CURRENT, Record, live

_BLOCKED_NS: Final = 200_000
_MAX_WAITS: Final = 64

_timed: dict[type, bool] = {}


def is_timed(flow: Any) -> bool:
    """Whether what `flow` waits reaches the request's record; sees to it when its class comes here first."""
    kind = type(flow)
    known = _timed.get(kind)
    if known is None:
        known = _timed[kind] = _time(kind)
    return known


def _time(kind: Any) -> bool:
    drain = getattr(kind, "drain", None)
    if getattr(drain, "__tailtrace__", False):
        return True
    if not inspect.iscoroutinefunction(drain):
        return False

    @wraps(drain)
    async def timed(self: Any) -> None:
        before = clock.now_ns()
        try:
            await drain(self)
        finally:
            scope = live(CURRENT.get())
            if scope is not None and scope.record is not None:
                note_wait(scope.record, before, clock.now_ns())

    timed.__tailtrace__ = True  # type: ignore[attr-defined]
    try:
        kind.drain = timed
    except (AttributeError, TypeError):
        return False
    return True


def note_wait(record: Record, before: int, after: int) -> None:
    """Keep a wait in `send`; neighbours are joined when there are too many."""
    if after - before < _BLOCKED_NS:
        return
    if record.waits is None:
        record.waits = []
    waits = record.waits
    waits.append((before, after))
    if len(waits) > _MAX_WAITS:
        at = min(range(len(waits) - 1), key=lambda i: waits[i + 1][0] - waits[i][1])
        waits[at : at + 2] = [(waits[at][0], waits[at + 1][1])]

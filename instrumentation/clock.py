"""One monotonic clock per process, anchored once to wall time.

A step of the wall clock inside a request changes neither a duration nor the order of two marks. Callers look `now_ns`
up at each use, or bind it when a request begins, so that tests can put their own clock in.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tailtrace.instrumentation.native import native

now_ns: Callable[[], int] = time.monotonic_ns

# The largest of a few: a pause between the two reads only makes it smaller, and processes of a host should agree.
_anchor_ns: int = max(time.time_ns() - time.monotonic_ns() for _ in range(5))


def anchor_ns() -> int:
    """What to add to a mark of this clock to get nanoseconds since the Unix epoch."""
    return _anchor_ns


def use(clock: Callable[[], int], anchor: int) -> tuple[Callable[[], int], int]:
    """Put another clock in and give the former back (tests)."""
    global now_ns, _anchor_ns
    former = (now_ns, _anchor_ns)
    now_ns, _anchor_ns = clock, anchor
    if native is not None:
        native.use_clock(None if is_real() else clock)
    return former


def is_real() -> bool:
    """Whether marks come from the system's clock and not from a test's."""
    return now_ns is time.monotonic_ns

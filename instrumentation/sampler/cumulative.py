"""A counter that others keep, seen from outside: wraps unwrapped, resets noticed, nonsense dropped.

What is sent counts from the first time it was seen, with that time as its start, so that a reset of the source is a new
start and never a step down.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

_WRAP_32: Final = 1 << 32
_MARGIN: Final = 1.2


class Step(Enum):
    """What one reading was."""

    FIRST = "first"
    ADVANCED = "advanced"
    STALE = "stale"
    RESET = "reset"
    IMPLAUSIBLE = "implausible"


ADVANCED: Final = Step.ADVANCED
"""Hundreds of readings a second are compared with it: on the class each look-up is a function call (Python 3.11)."""


class Cumulative:
    """`update` takes the raw reading; after ADVANCED, `total`, `start_ns`, `delta` and `elapsed_ns` hold."""

    __slots__ = ("_raw", "delta", "elapsed_ns", "start_ns", "time_ns", "total")

    def __init__(self) -> None:
        self._raw: int | None = None
        self.total = 0
        self.start_ns = 0
        self.time_ns = 0
        self.delta = 0
        self.elapsed_ns = 0

    def reseed(self) -> None:
        """Forget the source: it may have become another (driver reload, other GPU)."""
        self._raw = None

    def update(self, raw: int, time_ns: int, bits: int = 64, most_per_s: float = 0.0) -> Step:
        """`raw` read at `time_ns`. `most_per_s` (0: unknown) is what the source can do at best, in its own unit.

        A step down is a wrap only where the counter has 32 bits and the rate across the wrap is one the link can carry;
        otherwise the source was reset. 64 bits never wrap.
        """
        former = self._raw
        if former is None:
            return self._seed(raw, time_ns, Step.FIRST)
        elapsed = time_ns - self.time_ns
        if elapsed <= 0:
            return Step.STALE
        delta = raw - former
        most = most_per_s * _MARGIN * elapsed / 1e9 if most_per_s else 0.0
        if delta < 0:
            delta += _WRAP_32
            if bits != 32 or not 0 < delta <= most:
                return self._seed(raw, time_ns, Step.RESET)
        if most and delta > most:
            self._raw, self.time_ns = raw, time_ns
            return Step.IMPLAUSIBLE
        self._raw, self.time_ns = raw, time_ns
        self.total += delta
        self.delta, self.elapsed_ns = delta, elapsed
        return ADVANCED

    def _seed(self, raw: int, time_ns: int, step: Step) -> Step:
        self._raw, self.time_ns = raw, time_ns
        self.total, self.start_ns = 0, time_ns
        return step

"""What came in at the doors, what was made of it, and why: nothing that was sent goes missing without a number here."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

_NONE: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(slots=True)
class _Signal:
    received: int = 0
    accepted: int = 0
    deferred: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


class Counters:
    """Per signal, since the start: items (spans, data points) and refused requests. Thread-safe.

    received = accepted + deferred + rejected, at every moment: accepted ones are on disk, deferred ones were answered
    with "later" and are sent again by their sender. Refused requests could not be read, so their items are unknown, or
    are deferred ones.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._signals = {name: _Signal() for name in ("traces", "metrics", "logs")}

    def answered(
        self,
        signal: str,
        *,
        accepted: int = 0,
        deferred: int = 0,
        rejected: Mapping[str, int] = _NONE,
        mended: Mapping[str, int] = _NONE,
    ) -> None:
        """One body whose items are known has had its answer."""
        with self._lock:
            counts = self._signals[signal]
            counts.received += accepted + deferred + sum(rejected.values())
            counts.accepted += accepted
            counts.deferred += deferred
            counts.rejected.update(rejected)
            counts.mended.update(mended)

    def refused(self, signal: str, code: str) -> None:
        """One request was refused whole; `code` is the HTTP status or the gRPC one's name."""
        with self._lock:
            self._signals[signal].refused[code] += 1

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """By signal: received, accepted, deferred items; rejected items by reason; mended parts of accepted items by
        kind; refused requests by code."""
        with self._lock:
            return {
                name: {
                    "received": counts.received,
                    "accepted": counts.accepted,
                    "deferred": counts.deferred,
                    "rejected": dict(counts.rejected),
                    "mended": dict(counts.mended),
                    "refused": dict(counts.refused),
                }
                for name, counts in self._signals.items()
            }

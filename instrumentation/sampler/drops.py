"""Values that were read but not sent, counted by reason."""

from __future__ import annotations


class Drops:
    """Cumulative counts since the sampler's start."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, reason: str, count: int = 1) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + count

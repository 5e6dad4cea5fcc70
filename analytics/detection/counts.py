"""A series as the detector reads it: how many requests of each kind took how long, in intervals of five minutes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

INTERVAL_S: Final = 300
PER_HOUR: Final = 3600 // INTERVAL_S
PER_DAY: Final = 24 * PER_HOUR
BUCKET: Final = 1.02
"""Durations are counted in buckets whose upper bound is this to the power of k, in ns."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Cells in order of time: interval (Unix seconds / 300), kind of traffic (0 .. kinds - 1), bucket, requests."""

    interval: Any
    kind: Any
    bucket: Any
    n: Any
    kinds: int

    @property
    def first(self) -> int:
        return int(self.interval[0])

    @property
    def last(self) -> int:
        return int(self.interval[-1])

    def between(self, begin: int, end: int) -> Counts:
        """The cells of intervals [begin, end)."""
        a, b = np.searchsorted(self.interval, (begin, end))
        return Counts(self.interval[a:b], self.kind[a:b], self.bucket[a:b], self.n[a:b], self.kinds)

    def __len__(self) -> int:
        return len(self.interval)


def counts(interval: Any, stratum: Any, bucket: Any, n: Any) -> Counts:
    """Counts from columns of `strata_5m` in any order; cells that cancel out are dropped."""
    keep = n > 0
    order = np.argsort(interval[keep], kind="stable")
    kinds, kind = np.unique(stratum[keep][order], return_inverse=True)
    return Counts(
        interval[keep][order].astype(np.int64), kind.astype(np.int64), bucket[keep][order].astype(np.int64),
        n[keep][order].astype(np.float64), len(kinds),
    )  # fmt: skip

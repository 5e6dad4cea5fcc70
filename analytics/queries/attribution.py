"""Which stage makes a percentile: Euler allocation E[stage | value near Q_q] over a window of ranks, from log
buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.queries.percentiles import bucket_value_ns, rank

_ENOUGH: Final = 100


@dataclass(frozen=True, slots=True)
class Bucket:
    """One log bucket: its K, how many values, and their stage sums in ns (the last one is unexplained)."""

    k: int
    n: int
    stage_sums_ns: Sequence[int]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Stage parts of a percentile in ns, summing to `value_ns`, and the ranks that were averaged."""

    value_ns: int
    parts_ns: list[int]
    rank_low: int
    rank_high: int


def rank_window(q: float, n: int) -> tuple[int, int]:
    """Ranks around Q_q: ±0.5(1-q) of n, widened symmetrically until 100 values are inside, clipped to [1, n]."""
    middle = rank(q, n)
    half = max(int(0.5 * (1 - q) * n), (_ENOUGH - 1) // 2 + 1)
    return max(1, middle - half), min(n, middle + half)


def allocate(q: float, buckets: Sequence[Bucket]) -> Allocation | None:
    """Attribution of the q-percentile of a histogram in ascending K; None for an empty one."""
    n = sum(bucket.n for bucket in buckets)
    if n <= 0:
        return None
    low, high = rank_window(q, n)
    sums = [0.0] * len(buckets[0].stage_sums_ns)
    value, wanted, seen = 0, rank(q, n), 0
    for bucket in buckets:
        first, last = seen + 1, seen + bucket.n
        seen = last
        if first <= wanted <= last:
            value = bucket_value_ns(bucket.k)
        inside = min(high, last) - max(low, first) + 1
        if inside > 0:
            part = inside / bucket.n
            for index, spent in enumerate(bucket.stage_sums_ns):
                sums[index] += part * spent
    return Allocation(value, _scaled(sums, value), low, high)


def _scaled(sums: list[float], whole: int) -> list[int]:
    """Integers in the proportions of `sums` that add up to `whole` exactly (largest remainder)."""
    total = sum(sums)
    if total <= 0:
        return [0] * (len(sums) - 1) + [whole]
    exact = [whole * part / total for part in sums]
    floors = [int(part) for part in exact]
    order = sorted(range(len(sums)), key=lambda index: floors[index] - exact[index])
    for index in order[: whole - sum(floors)]:
        floors[index] += 1
    return floors

"""Which stage makes a percentile: Euler allocation E[stage | value near Q_q] over a window of ranks, from log
buckets. (Tasche, "Capital allocation to business units and sub-portfolios: the Euler principle", 2008.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.statistics.percentiles import bucket_value_ns, rank

ENOUGH: Final = 100


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
    half = max(int(0.5 * (1 - q) * n), (ENOUGH - 1) // 2 + 1)
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
    return Allocation(value, scaled(sums, value), low, high)


def scaled(sums: Sequence[float], whole: int) -> list[int]:
    """Integers in the proportions of `sums` that add up to `whole` exactly; all in the last one without any sum."""
    total = sum(sums)
    if total <= 0:
        return [0] * (len(sums) - 1) + [whole]
    return whole_numbers([whole * part / total for part in sums], whole)


def whole_numbers(exact: Sequence[float], whole: int) -> list[int]:
    """`exact` rounded down or up so that the sum is `whole` (largest remainder); parts may be negative.

    What `exact` itself misses of `whole` by more than one per part goes to the largest part.
    """
    floors = [int(part // 1) for part in exact]
    order = sorted(range(len(exact)), key=lambda index: floors[index] - exact[index])
    missing = whole - sum(floors)
    for index in order[: max(0, min(missing, len(floors)))]:
        floors[index] += 1
    rest = whole - sum(floors)
    if rest:
        floors[max(range(len(exact)), key=lambda index: abs(exact[index]))] += rest
    return floors

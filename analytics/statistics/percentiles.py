"""Nearest-rank percentiles, from sorted values or from log buckets, with their order-statistic interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

BASE: Final = 1.02
_Z95: Final = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Percentile:
    """One percentile in nanoseconds. `hollow` = fewer than 10/(1-q) values stand behind it, so only the interval
    counts.

    `low_ns` and `high_ns` are the 95 % order-statistic interval; a bound that lies beyond the smallest or largest value
    seen is null, because no value bounds it.
    """

    q: float
    value_ns: int | None
    low_ns: int | None
    high_ns: int | None
    n: int
    hollow: bool


def bucket_of(value_ns: int) -> int:
    """The log bucket K = ceil(log_1.02 ns) of the rollups; values of at most 1 ns share bucket 0."""
    return math.ceil(math.log(max(value_ns, 1)) / math.log(BASE))


def bucket_value_ns(k: int) -> int:
    """A value within 1 % of everything in bucket `k`: its geometric middle."""
    return max(1, round(math.pow(BASE, k - 0.5)))


def rank(q: float, n: int) -> int:
    """Nearest rank ceil(q n), from 1 to n. `round` first, because 0.95 * 20 is 19.000000000000004 to a float."""
    return min(n, max(1, math.ceil(round(q * n, 9))))


def needed(q: float) -> int:
    """How many values a percentile needs before it is drawn as a number: 10/(1-q)."""
    return math.ceil(round(10 / (1 - q), 9))


def interval_ranks(q: float, n: int) -> tuple[int, int]:
    """Ranks of the 95 % order-statistic interval (normal approximation of the binomial). 0 and n + 1 mean unbounded."""
    spread = _Z95 * math.sqrt(n * q * (1 - q))
    return max(0, math.floor(q * n - spread)), min(n + 1, math.ceil(q * n + spread) + 1)


def percentile_of_buckets(q: float, buckets: Sequence[tuple[int, int]]) -> Percentile:
    """Percentile of a histogram given as (K, count) in ascending K; counts of zero are allowed."""
    n = sum(count for _, count in buckets)
    if n <= 0:
        return Percentile(q, None, None, None, 0, True)
    low, high = interval_ranks(q, n)
    return Percentile(
        q=q,
        value_ns=_value_at(buckets, rank(q, n)),
        low_ns=_value_at(buckets, low) if low >= 1 else None,
        high_ns=_value_at(buckets, high) if high <= n else None,
        n=n,
        hollow=n < needed(q),
    )


def _value_at(buckets: Sequence[tuple[int, int]], wanted: int) -> int:
    seen = 0
    for k, count in buckets:
        seen += count
        if seen >= wanted:
            return bucket_value_ns(k)
    return bucket_value_ns(buckets[-1][0])

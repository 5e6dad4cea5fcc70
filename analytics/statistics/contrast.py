"""How two groups of requests differ in one column: Cliff's delta, from -1 to 1, with an interval.

Delta is the chance that a slow request has the larger value less the chance that it has the smaller (Cliff, "Dominance
statistics", 1993). For a yes-or-no column that is the difference of the two shares, so numbers and labels rank on one
scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Effect:
    """Delta and its bounds."""

    delta: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out no difference at all."""
        return self.low > 0 or self.high < 0


def critical(tests: int) -> float:
    """z of a 95 % interval that holds for `tests` of them at once (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.025 / max(1, tests))


def share_difference(slow: int, n_slow: int, rest: int, n_rest: int, z: float) -> Effect:
    """Difference of two shares with Newcombe's interval (1998, method 10: two Wilson intervals)."""
    p, q = slow / n_slow, rest / n_rest
    low_p, high_p = wilson(slow, n_slow, z)
    low_q, high_q = wilson(rest, n_rest, z)
    delta = p - q
    low = delta - math.hypot(p - low_p, high_q - q)
    return Effect(delta, low, delta + math.hypot(high_p - p, q - low_q))


def wilson(k: int, n: int, z: float) -> tuple[float, float]:
    """Interval of a share, k of n."""
    centre, spread = k + z * z / 2, z * math.sqrt(k * (n - k) / n + z * z / 4)
    return max(0.0, (centre - spread) / (n + z * z)), min(1.0, (centre + spread) / (n + z * z))


def dominance(slow: Any, rest: Any, z: float) -> Effect:
    """Cliff's delta of two groups of numbers with DeLong's interval (1988): by rows' placements in the other group."""
    m, n = len(slow), len(rest)
    ordered_rest, ordered_slow = np.sort(rest), np.sort(slow)
    of_slow = (np.searchsorted(ordered_rest, slow) + np.searchsorted(ordered_rest, slow, side="right")) / n - 1
    of_rest = 1 - (np.searchsorted(ordered_slow, rest) + np.searchsorted(ordered_slow, rest, side="right")) / m
    delta = float(of_slow.mean())
    variance = float(of_slow.var(ddof=1) / m + of_rest.var(ddof=1) / n) if min(m, n) > 1 else 4.0
    spread = z * math.sqrt(variance)
    return Effect(delta, max(-1.0, delta - spread), min(1.0, delta + spread))


def mean_difference(slow: Any, rest: Any, z: float) -> tuple[float, float, float]:
    """Difference of the means with Welch's interval."""
    delta = float(slow.mean() - rest.mean())
    if min(len(slow), len(rest)) < 2:
        return delta, -math.inf, math.inf
    spread = z * math.sqrt(float(slow.var(ddof=1) / len(slow) + rest.var(ddof=1) / len(rest)))
    return delta, delta - spread, delta + spread

"""What changed a percentile from A to B: other traffic, or the same traffic served differently, and by which stage.

Four populations are made of the strata that both sides have: A's and B's rows, each weighted to A's and to B's mix.
With Q(F, w) the percentile of rows F at mix w,

    mix    = 1/2 [Q(A, wB) - Q(A, wA)] + 1/2 [Q(B, wB) - Q(B, wA)]
    within = 1/2 [Q(B, wA) - Q(A, wA)] + 1/2 [Q(B, wB) - Q(A, wB)]

which is Kitagawa's symmetric split ("Components of a difference between two rates", 1955) on percentiles. Euler parts
of the four percentiles split `within` among stages. Traffic of one side only is what the percentile moves when those
rows come in or go. All of it sums to Q(B) - Q(A).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.statistics.sample import Sample, bounds
from tailtrace.analytics.statistics.strata import Strata

REPLICATES: Final = 120


@dataclass(frozen=True, slots=True)
class Change:
    """Value and 95 % bounds in ns of each term, as arrays [a, b, delta, mix, new, vanished, within, *within by stage].

    `simpson`: the percentile moved one way and the same traffic the other, beyond its interval.
    """

    value: Any
    low: Any
    high: Any
    simpson: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One side's rows: a sorted sample, weights and strata by row as given, and what share of A and B is common."""

    sample: Sample
    weights: Any
    strata: Any


def sides(a: tuple[Any, Any, Any], b: tuple[Any, Any, Any], strata: Strata) -> tuple[Side, Side]:
    """The two sides from (values, parts, weights) each."""
    return (
        Side(Sample(a[0], a[1]), a[2][np.argsort(a[0], kind="stable")], strata.a[np.argsort(a[0], kind="stable")]),
        Side(Sample(b[0], b[1]), b[2][np.argsort(b[0], kind="stable")], strata.b[np.argsort(b[0], kind="stable")]),
    )


def decompose(q: float, a: Side, b: Side, count: int, *, seed: int = 0, replicates: int = REPLICATES) -> Change | None:
    """The change of the q-percentile from A to B; None where a side is empty. `count` strata are common."""
    if not len(a.sample) or not len(b.sample):
        return None
    generator = np.random.default_rng(seed)
    own = _terms(q, a, b, a.weights, b.weights, count)
    drawn = np.array(
        [
            _terms(q, a, b, a.weights * _drawn(generator, len(a.sample)), b.weights * _drawn(generator, len(b.sample)),
                   count)
            for _ in range(replicates)
        ]
    )  # fmt: skip
    low, high = bounds(drawn)
    low, high = np.minimum(low, own), np.maximum(high, own)
    delta, within = own[2], own[6]
    opposite = delta * within < 0 and (low[6] > 0 or high[6] < 0)
    return Change(own, low, high, bool(opposite))


def _drawn(generator: np.random.Generator, n: int) -> Any:
    return np.bincount(generator.integers(0, n, n), minlength=n).astype(np.float64)


def _terms(q: float, a: Side, b: Side, weight_a: Any, weight_b: Any, count: int) -> Any:
    """[a, b, delta, mix, new, vanished, within, *within by stage] under these weights (sorted as the samples are)."""
    stages = a.sample.parts.shape[1]
    whole_a, whole_b = _split(q, a, weight_a), _split(q, b, weight_b)
    if whole_a is None or whole_b is None:
        return np.full(7 + stages, np.nan)
    head = [whole_a[0], whole_b[0], whole_b[0] - whole_a[0]]
    mass_a, mass_b = _masses(a, weight_a, count), _masses(b, weight_b, count)
    both = (mass_a > 0) & (mass_b > 0)
    if not both.any():
        return np.array([*head, 0.0, head[2], 0.0, 0.0, *np.zeros(stages)])
    # Rows of A at A's mix, A at B's, B at A's, B at B's: strata that a draw emptied on one side are left out of all.
    factors = [
        np.where(both, numerator / np.where(own > 0, own, 1.0), 0.0)
        for own, numerator in ((mass_a, mass_a), (mass_a, mass_b), (mass_b, mass_a), (mass_b, mass_b))
    ]
    aa, ab = (_split(q, a, _at_mix(a, weight_a, factor)) for factor in factors[:2])
    ba, bb = (_split(q, b, _at_mix(b, weight_b, factor)) for factor in factors[2:])
    if aa is None or ab is None or ba is None or bb is None:
        return np.full(7 + stages, np.nan)
    mix = 0.5 * (ab[0] - aa[0]) + 0.5 * (bb[0] - ba[0])
    within = 0.5 * (ba - aa) + 0.5 * (bb - ab)
    vanished, new = aa[0] - whole_a[0], whole_b[0] - bb[0]
    return np.array([*head, mix, new, vanished, within[0], *within[1:]])


def _split(q: float, side: Side, weights: Any) -> Any:
    """[percentile, *parts]; None without any weight."""
    split = side.sample.split_at(q, np.cumsum(weights))
    return None if split is None else np.concatenate(([split.value], split.parts))


def _masses(side: Side, weights: Any, count: int) -> Any:
    """Share of the side's weight in each common stratum."""
    common = side.strata >= 0
    return np.bincount(side.strata[common], weights[common], count) / max(float(weights.sum()), 1e-300)


def _at_mix(side: Side, weights: Any, factor: Any) -> Any:
    return weights * np.append(factor, 0.0)[side.strata]

"""Percentiles and their Euler allocation from rows with weights, and bootstrap intervals of anything made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.statistics.euler import ENOUGH

REPLICATES: Final = 200
_LOW, _HIGH = 0.025, 0.975


@dataclass(frozen=True, slots=True)
class Split:
    """A percentile, its parts (they sum to it), and the rows averaged, as 0-based positions in ascending order."""

    value: float
    parts: Any
    first: int
    last: int


class Sample:
    """Rows in ascending order of their value. `values` is n, `parts` n x stages (a row's parts sum to what is split).

    `order` are the rows' positions in what was given, so that other columns and weights can follow.
    """

    def __init__(self, values: Any, parts: Any) -> None:
        self.order = np.argsort(values, kind="stable")
        self.values = np.asarray(values, np.float64)[self.order]
        self.parts = np.asarray(parts, np.float64)[self.order]

    def __len__(self) -> int:
        return len(self.values)

    def split(self, q: float, weights: Any) -> Split | None:
        """The q-percentile under `weights` (by given row, as before sorting); None without any weight.

        Nearest rank on the cumulated weight. The window is ±0.5(1-q) of the weight, at least 100 rows where there are
        so many.
        """
        cumulated = np.cumsum(weights[self.order])
        return self.split_at(q, cumulated)

    def split_at(self, q: float, cumulated: Any) -> Split | None:
        """As `split`, from weights already sorted and cumulated."""
        n = len(cumulated)
        whole = cumulated[-1] if n else 0.0
        if whole <= 0:
            return None
        middle = min(n - 1, int(np.searchsorted(cumulated, q * whole * (1 - 1e-12))))
        half = 0.5 * (1 - q) * whole
        first = int(np.searchsorted(cumulated, cumulated[middle] - half * (1 + 1e-12)))
        last = int(np.searchsorted(cumulated, cumulated[middle] + half * (1 + 1e-12), side="right")) - 1
        if last - first < ENOUGH:
            first, last = max(0, middle - ENOUGH // 2), min(n - 1, middle + ENOUGH // 2)
        weight = np.diff(cumulated[first : last + 1], prepend=cumulated[first - 1] if first else 0.0)
        sums = weight @ self.parts[first : last + 1]
        total = sums.sum()
        value = float(self.values[middle])
        parts = sums * (value / total) if total > 0 else np.append(np.zeros(self.parts.shape[1] - 1), value)
        return Split(value, parts, first, last)


def bootstrap(
    counts_of: int, statistic: Callable[[Any], Any], *, seed: int = 0, replicates: int = REPLICATES
) -> tuple[Any, Any]:
    """95 % percentile-bootstrap bounds of `statistic(counts)`, an array; counts say how often each row was drawn.

    The same rows and seed give the same bounds. (Efron and Tibshirani, "An Introduction to the Bootstrap", 13.3.)
    """
    generator = np.random.default_rng(seed)
    found = [
        statistic(np.bincount(generator.integers(0, counts_of, counts_of), minlength=counts_of).astype(np.float64))
        for _ in range(replicates)
    ]
    return bounds(np.array(found))


def bounds(replicates: Any) -> tuple[Any, Any]:
    """2.5 % and 97.5 % of each column, replicates without a value left out."""
    with np.errstate(all="ignore"):
        return np.nanquantile(replicates, _LOW, axis=0), np.nanquantile(replicates, _HIGH, axis=0)

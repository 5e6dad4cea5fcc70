"""Kinds of traffic that two groups of requests share, made coarser only where one of them has too few of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

FEWEST: Final = 10


@dataclass(frozen=True, slots=True)
class Strata:
    """Stratum of each row of A and of B, the same numbers on both sides; -1 where the other side has none of its kind.

    `count` strata hold at least `FEWEST` rows of either side.
    """

    a: Any
    b: Any
    count: int


def match(a: Sequence[Any], b: Sequence[Any], *, fewest: int = FEWEST) -> Strata:
    """Strata of two groups from their keys, finest first: each level is an integer a row, the same on both sides.

    A row belongs to the finest level at which both sides have `fewest` rows of its kind that no finer level took.
    (Iacus, King and Porro, "Causal inference without balance checking: coarsened exact matching", 2012.)
    """
    n_a, n_b = len(a[0]), len(b[0])
    stratum = np.full(n_a + n_b, -1, np.int64)
    side = np.arange(n_a + n_b) >= n_a
    count = 0
    for level_a, level_b in zip(a, b, strict=True):
        left = np.flatnonzero(stratum < 0)
        if not len(left):
            break
        kinds, kind = np.unique(np.concatenate((level_a, level_b))[left], return_inverse=True)
        of_b = np.bincount(kind[side[left]], minlength=len(kinds))
        of_a = np.bincount(kind[~side[left]], minlength=len(kinds))
        enough = (of_a >= fewest) & (of_b >= fewest)
        numbers = np.where(enough, count + np.cumsum(enough) - 1, -1)
        stratum[left] = numbers[kind]
        count += int(enough.sum())
    return Strata(stratum[:n_a], stratum[n_a:], count)

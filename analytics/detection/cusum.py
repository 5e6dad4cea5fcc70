"""How strongly the newest intervals speak for a change (Page 1954, Siegmund and Venkatraman 1995); where it began."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

ALLOWANCE: Final = 1.0
"""k, in standard deviations of an interval: departures below it are forgotten."""
THRESHOLD: Final = 13.0
"""h: the sum at which a change is suspected."""


def evidence(z: Any, allowance: float) -> Any:
    """By column of `z` [interval, statistic], for a departure that goes on until its end: the likelihood ratio of the
    best start and size, in units of Page's sum.

    A departure of twice the allowance gives exactly that sum, max over starts of sum(z - k). Larger ones give more than
    it, as they should: Page's sum is the best test for a shift of 2k, this one for every shift from 2k on.
    """
    tails = np.cumsum(z[::-1], axis=0)
    lengths = np.arange(1, len(z) + 1)[:, None]
    size = np.maximum(tails / lengths, 2.0 * allowance)
    return np.maximum((tails * size - 0.5 * lengths * size**2).max(axis=0) / (2.0 * allowance), 0.0)


def onset(z: Any) -> int:
    """The first index of the departure at the end of `z`: the most likely start of a shift of unknown size from 0."""
    tails = np.cumsum(z[::-1])[::-1]
    lengths = np.arange(len(z), 0, -1)
    likelihood = np.where(tails > 0, tails, 0.0) ** 2 / lengths
    return int(np.argmax(likelihood))

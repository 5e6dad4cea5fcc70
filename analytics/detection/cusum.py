"""The running sum that crosses when departures keep coming (Page 1954), and where they began."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

ALLOWANCE: Final = 1.0
"""k, in standard deviations of an interval: departures below it are forgotten."""
THRESHOLD: Final = 12.0
"""h: the sum at which a change is suspected."""


def onset(z: Any) -> int:
    """The first index of the departure at the end of `z`: the most likely start of a shift of unknown size from 0."""
    tails = np.cumsum(z[::-1])[::-1]
    lengths = np.arange(len(z), 0, -1)
    likelihood = np.where(tails > 0, tails, 0.0) ** 2 / lengths
    return int(np.argmax(likelihood))

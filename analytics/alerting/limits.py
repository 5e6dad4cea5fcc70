"""Percentiles against limits, and error budgets: arrays of minutes in, states out."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

State = Literal["firing", "clear", "not_enough", "between"]
BURNS: Final = ((14.4, 60, 5), (6.0, 360, 30), (1.0, 4320, 360))
"""Burn rate of a 30-day budget, long and short window in minutes (SRE workbook, chapter 5)."""


def sliding_percentile(histogram: Any, window: int, q: float) -> tuple[Any, Any]:
    """Of a histogram [minute, bucket], for each minute with `window` minutes behind it: (bucket index, requests).

    Nearest rank; -1 where there are none.
    """
    sums = np.cumsum(np.vstack((np.zeros((1, histogram.shape[1])), histogram)), axis=0)
    within = sums[window:] - sums[:-window]
    n = within.sum(axis=1)
    cumulative = np.cumsum(within, axis=1)
    rank = np.maximum(np.ceil(q * n - 1e-9), 1.0)
    at = (cumulative < rank[:, None]).sum(axis=1)
    return np.where(n > 0, at, -1), n


def held(values: Any, n: Any, *, above: float, clear: float, fewest: int) -> State:
    """What a percentile's last minutes say together: all above, all below `clear`, too few requests, or in between."""
    if not len(values) or (n < fewest).any():
        return "not_enough"
    if (values > above).all():
        return "firing"
    return "clear" if (values <= clear).all() else "between"


def burning(bad: Any, total: Any, objective: float, fewest: int) -> tuple[State, float]:
    """State and highest burn rate that both its windows agree on, from counts by minute that end now."""
    budget = 1.0 - objective
    worst, enough, below = 0.0, False, True
    for rate, long, short in BURNS:
        rates = []
        for window in (long, short):
            n = float(total[-window:].sum())
            rates.append(float(bad[-window:].sum()) / n / budget if n else 0.0)
        if float(total[-long:].sum()) < fewest:
            continue
        enough = True
        worst = max(worst, min(rates)) if min(rates) > rate else worst
        below = below and rates[1] < rate
    if not enough:
        return "not_enough", 0.0
    return ("firing" if worst else "clear" if below else "between"), worst

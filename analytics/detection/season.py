"""What is usual at this hour: departures that come back each day or each week at the same local hour.

One departure is an incident, not a season: an hour counts only by what every occurrence of it had in common, so
yesterday's outage does not hide today's.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from tailtrace.analytics.detection.counts import INTERVAL_S, PER_HOUR

FEWEST_DAYS: Final = 2
FEWEST_WEEKS: Final = 2


@lru_cache(maxsize=20_000)
def _local(hour: int, zone: str) -> tuple[int, int, int]:
    moment = datetime.fromtimestamp(hour * 3600, UTC).astimezone(ZoneInfo(zone))
    return moment.hour, moment.weekday() * 24 + moment.hour, moment.toordinal()


def local_hours(start: int, stop: int, zone: str) -> tuple[Any, Any, Any]:
    """Of intervals [start, stop): local hour of the day, of the week, and the day. Days of 23 and 25 hours come out
    right: an hour that a clock change leaves out has no interval, one that it repeats has twice as many.
    """
    step = PER_HOUR
    first, last = start // step, (stop - 1) // step
    rows = np.array([_local(hour * step * INTERVAL_S // 3600, zone) for hour in range(first, last + 1)])
    rows = np.repeat(rows, step, axis=0)[start - first * step : stop - first * step]
    return rows[:, 0], rows[:, 1], rows[:, 2]


class Season:
    """Expected departure a request, by hour of week where two weeks of it are there, else by hour of day."""

    def __init__(self, start: int, stop: int, zone: str, n: Any, excess: Any, variance: Any) -> None:
        """From a reference's intervals [start, stop): covered requests, score minus expectation, variance."""
        self._zone = zone
        hours, weekly, days = local_hours(start, stop, zone)
        self._daily = _common(hours, 24, days, n, excess, variance, FEWEST_DAYS)
        self._weekly = _common(weekly, 168, days, n, excess, variance, FEWEST_WEEKS)

    def of(self, start: int, stop: int) -> Any:
        """Departure a request in each interval."""
        hours, weekly, _ = local_hours(start, stop, self._zone)
        own = self._weekly[weekly]
        return np.where(np.isnan(own), np.nan_to_num(self._daily[hours]), own)


def _common(slot: Any, slots: int, day: Any, n: Any, excess: Any, variance: Any, fewest: int) -> Any:
    """By slot the departure that its occurrences share; NaN where there are fewer of them than `fewest`.

    Shared means that three quarters of them go the same way (both of two); then it is their median (the lesser of two),
    shrunk by what chance would give (James and Stein 1961).
    """
    found = np.full(slots, np.nan)
    days = np.unique(day, return_inverse=True)[1]
    width = int(days.max()) + 1 if len(days) else 1
    cell = slot * width + days
    requests, sums, spread = (
        np.bincount(cell, values, slots * width).reshape(slots, width) for values in (n, excess, variance)
    )
    for at in range(slots):
        seen = requests[at] >= 10
        if seen.sum() < fewest:
            continue
        each = np.sort(sums[at][seen] / requests[at][seen])
        quarter = len(each) // 4
        low, high = float(each[quarter]), float(each[-1 - quarter])
        if low * high <= 0:
            found[at] = 0.0
            continue
        middle = float(np.median(each)) if len(each) > 2 else (low if low > 0 else high)
        chance = float(spread[at][seen].sum()) / float(requests[at][seen].sum()) ** 2
        found[at] = middle * max(0.0, 1.0 - chance / middle**2)
    return found

"""Stratified exceedance CUSUM over one series: when it became slower, how sure that is, and when it was over.

The reference is the days before, without the intervals of a change that is going on; it is made anew every six hours
(hourly in the first day), so it ages with the service. Departures are divided by their long-run spread in the
reference: a service that wanders by itself needs more to be called changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from tailtrace.analytics.detection.counts import PER_DAY, PER_HOUR, Counts
from tailtrace.analytics.detection.cusum import ALLOWANCE, THRESHOLD, evidence, onset
from tailtrace.analytics.detection.reference import STATISTICS, Reference, build, histogram
from tailtrace.analytics.detection.season import Season

State = Literal["suspected", "confirmed", "resolved", "dismissed", "accepted"]
WARM_REQUESTS: Final = 2_000
WARM_INTERVALS: Final = 2 * PER_HOUR
WIDE_INTERVALS: Final = 3 * PER_DAY
REFERENCE_INTERVALS: Final = 15 * PER_DAY
EPOCH: Final = 6 * PER_HOUR
YOUNG_EPOCH: Final = PER_HOUR
FEWEST_IN_STEP: Final = 20
CONFIRM_STEPS: Final = 2
AT_ONCE: Final = 3.0
SUSTAINED: Final = 3
"""No blip, so confirmed in the interval that it crosses in: a sum of three thresholds, or this many departures in a row
from steps that began before them.
"""
RECOVERED: Final = 0.35
"""A change is over when the steps that follow depart by less than this share of what it departed by."""
RECOVERY_STEPS: Final = (3, 36)
"""Fewest and most steps that this takes: the smaller a change, the longer until its end can be told from chance."""
LASTING: Final = 4.5
"""Thresholds for each long-run variance of an interval: noise that lasts makes sums grow by themselves."""
ONSET_ERROR: Final = 2
ACCEPTED_INTERVALS: Final = 3 * PER_DAY


@dataclass(frozen=True, slots=True)
class Found:
    """A change, times in intervals: requests were slower from `onset` on; `until` is its last interval, if over.

    `statistic`: whether body or tail crossed. `departure`: mean z of the intervals that confirmed it. `on_top`: judged
    against what was usual during a change that was going on already.
    """

    onset: int
    suspected: int
    statistic: str
    departure: float
    state: State
    confirmed: int | None = None
    until: int | None = None
    on_top: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """Changes in order of time, and how well the newest intervals could be judged.

    `learning`: (reference requests so far, needed) while warming up. `covered`: share of the last day's requests that
    are of a kind the reference knows. `z`: body and tail by interval from `first` on, NaN where nothing was judged.
    """

    changes: list[Found]
    learning: tuple[int, int] | None
    covered: float
    first: int
    z: Any


def detect(
    cells: Counts,
    *,
    until: int,
    judge_from: int | None = None,
    known: Sequence[Found] = (),
    zone: str = "UTC",
    allowance: float = ALLOWANCE,
    threshold: float = THRESHOLD,
) -> Judged:
    """Judge intervals [judge_from, until). `known` changes that began before are left out of the reference, and carried
    on when they are still open.

    A change that lasts is a reference of its own once there is enough of it: what comes on top of it is found too.
    """
    run = _Run(cells, until, zone, allowance, threshold, known)
    judged = run.judge(max(cells.first if judge_from is None else judge_from, cells.first))
    known_over = [change for change in known if change.until is not None]
    more = [
        found
        for change in (*known_over, *judged.changes)
        if change.confirmed is not None
        for found in _on_top(change, cells, until, zone, allowance, threshold)
    ]
    return replace(judged, changes=judged.changes + more) if more else judged


def _on_top(change: Found, cells: Counts, until: int, zone: str, allowance: float, threshold: float) -> list[Found]:
    """Changes within a confirmed change, by what was usual since its onset. They end with it."""
    end = until if change.until is None else change.until + 1
    start = max(change.onset + ONSET_ERROR, cells.first)
    if end - start <= WARM_INTERVALS:
        return []
    within = cells.between(start, end)
    if not len(within):
        return []
    run = _Run(within, end, zone, allowance, threshold, ())
    found = [each for each in run.judge(within.first).changes if each.confirmed is not None]
    over = change.state if change.until is not None else None
    return [
        replace(each, on_top=True, state=over, until=change.until)
        if over is not None and each.until is None
        else replace(each, on_top=True)
        for each in found
    ]


class _Run:
    def __init__(
        self, cells: Counts, until: int, zone: str, allowance: float, threshold: float, known: Sequence[Found]
    ) -> None:
        self._cells, self._until, self._zone = cells, until, zone
        self._allowance, self._threshold = allowance, threshold
        self._first = cells.first
        self._base = int(cells.bucket.min())
        self._width = int(cells.bucket.max()) - self._base + 1
        self._usual = np.ones(max(until - self._first, 1), np.bool_)
        self._over = np.zeros(len(self._usual), np.bool_)
        self._changes: list[Found] = []
        self._z = np.full((2, max(until - self._first, 1)), np.nan)
        self._floor = self._first
        self._reset = self._first
        self._sums = np.zeros(2)
        self._thresholds = np.full(2, threshold)
        self._carried = np.zeros((2, 2))
        self._carried_n = 0.0
        self._steps: list[tuple[int, Any]] = []
        for change in known:
            end = until if change.until is None else change.until + 1
            self._usual[max(change.onset - self._first, 0) : max(end - self._first, 0)] = False
            if change.until is not None:
                self._over[max(change.onset - self._first, 0) : max(end - self._first, 0)] = True
            if change.state in ("suspected", "confirmed") and change.until is None:
                self._changes.append(change)

    def judge(self, start: int) -> Judged:
        learning: tuple[int, int] | None = None
        covered = total = 0.0
        at = start
        while at < self._until:
            age = at - self._first
            stop = min(self._until, at + (YOUNG_EPOCH if age < PER_DAY else EPOCH))
            made = self._reference(at)
            requests = int(made[1])
            if requests < WARM_REQUESTS or age < WARM_INTERVALS:
                learning = (requests, WARM_REQUESTS)
            else:
                learning = None
                seen, known = self._step(made[0], at, stop, age)
                if stop > self._until - PER_DAY:
                    total, covered = total + seen, covered + known
            at = stop
        share = covered / total if total else 0.0
        return Judged(self._changes, learning, share, self._first, self._z)

    def _reference(self, at: int) -> tuple[Reference, float]:
        """The reference of intervals before `at`, and how many requests it holds."""
        cells = self._cells
        since = max(self._floor, at - REFERENCE_INTERVALS)
        begin, end = np.searchsorted(cells.interval, (since, at))
        counted = np.zeros((cells.kinds, self._width))
        histogram(
            cells.interval[begin:end], cells.kind[begin:end], cells.bucket[begin:end], cells.n[begin:end], self._usual,
            self._first, self._base, counted,
        )  # fmt: skip
        return build(counted, self._base), float(counted.sum())

    def _step(self, reference: Reference, at: int, stop: int, age: int) -> tuple[float, float]:
        """Judge [at, stop); gives its requests and those that are covered."""
        cells = self._cells
        since = max(self._floor, at - REFERENCE_INTERVALS)
        begin, middle, end = np.searchsorted(cells.interval, (since, at, stop))
        _, usual_n, past, past_variance = reference.sums(cells, begin, middle, since, at)
        total, n, excess, variance = reference.sums(cells, middle, end, at, stop)
        kept = self._usual[since - self._first : at - self._first]
        for s in range(2):
            season = Season(since, at, self._zone, usual_n, past[s], past_variance[s])
            past[s] -= usual_n * season.of(since, at)
            excess[s] -= n * season.of(at, stop)
            scale, lasting = _spread(past[s], past_variance[s], kept)
            variance[s] *= scale
            self._thresholds[s] = max(self._threshold, LASTING * lasting)
        self._thresholds *= 1.0 + max(0.0, 1.0 - age / WIDE_INTERVALS)
        for i in range(stop - at):
            self._interval(at + i, n[i], excess[:, i], variance[:, i])
        return float(total.sum()), float(n.sum())

    def _interval(self, at: int, n: float, excess: Any, variance: Any) -> None:
        """One interval more; thin ones are added up until there is something to judge."""
        if self._over[at - self._first]:
            self._restart(at)
            return
        self._carried += np.stack((excess, variance))
        self._carried_n += n
        open_change = self._changes[-1] if self._changes and self._changes[-1].until is None else None
        if open_change is not None and open_change.state == "confirmed":
            self._usual[at - self._first] = False
        if self._carried_n < FEWEST_IN_STEP:
            return
        z = self._carried[0] / np.sqrt(np.maximum(self._carried[1], 1e-9))
        self._carried[:] = 0.0
        self._carried_n = 0.0
        self._z[:, at - self._first] = z
        self._steps.append((at, z))
        if open_change is not None and open_change.state == "confirmed":
            self._follow(open_change, at)
            return
        self._sums = evidence(self._z_since(at), self._allowance)
        if open_change is not None:
            self._decide(open_change, at)
        elif (self._sums > self._thresholds).any():
            self._raise(at)

    def _z_since(self, at: int) -> Any:
        """Departures of the steps since the last decision, of a day at most; [step, statistic]."""
        z = self._z[:, max(self._reset, at + 1 - PER_DAY) - self._first : at + 1 - self._first]
        return z[:, ~np.isnan(z[0])].T

    def _raise(self, at: int) -> None:
        statistic = int(np.argmax(self._sums / self._thresholds))
        began, departure = self._began(statistic)
        change = Found(began, at, STATISTICS[statistic], departure, "suspected")
        recent = [(when, z[statistic]) for when, z in self._steps if when >= began][-SUSTAINED:]
        sustained = len(recent) == SUSTAINED and began < recent[0][0] and min(z for _, z in recent) > self._allowance
        if sustained or self._sums[statistic] > AT_ONCE * self._thresholds[statistic]:
            change = self._confirmed(change, at)
        self._changes.append(change)

    def _decide(self, change: Found, at: int) -> None:
        """A suspected change is confirmed when what follows departs as well, dismissed when it does not."""
        statistic = STATISTICS.index(change.statistic)
        later = [z[statistic] for when, z in self._steps if when > change.suspected]
        usual = max(self._allowance, RECOVERED * change.departure)
        if self._sums[statistic] > self._thresholds[statistic] and float(np.mean(later)) > usual:
            self._changes[-1] = self._confirmed(change, at)
        elif len(later) >= CONFIRM_STEPS:
            self._changes[-1] = replace(change, state="dismissed", until=at)
            self._restart(at)

    def _confirmed(self, change: Found, at: int) -> Found:
        statistic = STATISTICS.index(change.statistic)
        began, departure = self._began(statistic)
        self._usual[began - self._first : at + 1 - self._first] = False
        return replace(change, onset=began, departure=departure, state="confirmed", confirmed=at)

    def _began(self, statistic: int) -> tuple[int, float]:
        """Onset of the departure that ends now, and its mean z."""
        steps = [(when, z[statistic]) for when, z in self._steps if when >= self._reset]
        values = np.array([value for _, value in steps])
        first = onset(values)
        # A thin step covers the intervals since the one before it; it began after that.
        began = steps[first - 1][0] + 1 if first and steps[first][0] - steps[first - 1][0] > 1 else steps[first][0]
        return began, float(values[first:].mean())

    def _follow(self, change: Found, at: int) -> None:
        """A confirmed change ends when requests are as before, or becomes what is usual after three days."""
        statistic = STATISTICS.index(change.statistic)
        since = change.confirmed if change.confirmed is not None else change.suspected
        wanted = int(np.clip(np.ceil((8.0 / max(change.departure, 0.1)) ** 2), *RECOVERY_STEPS))
        later = [(when, z[statistic]) for when, z in self._steps if when > since][-wanted:]
        if len(later) == wanted:
            mean = float(np.mean([value for _, value in later]))
            if mean < max(self._allowance * 0.5, RECOVERED * change.departure):
                self._changes[-1] = replace(change, state="resolved", until=later[0][0] - 1)
                self._usual[later[0][0] - self._first : at + 1 - self._first] = True
                self._restart(at)
                return
        if at - change.onset >= ACCEPTED_INTERVALS:
            self._changes[-1] = replace(change, state="accepted", until=at)
            self._floor = change.onset
            self._usual[change.onset - self._first : at + 1 - self._first] = True
            self._restart(at)

    def _restart(self, at: int) -> None:
        self._sums = np.zeros(2)
        self._reset = at + 1


def _spread(excess: Any, variance: Any, kept: Any) -> tuple[float, float]:
    """How much more an interval's departures spread than chance would have them, and how much more yet those of
    neighbouring ones together, over one and three hours (both >= 1). By medians, so that an incident does not count.
    """
    use = kept & (variance > 0)
    alone = max(_ratio(np.where(use, excess, 0.0), np.where(use, variance, 0.0), 1), 1.0)
    together = max(
        _ratio(np.where(use, excess, 0.0), np.where(use, variance, 0.0), block) for block in (PER_HOUR, 3 * PER_HOUR)
    )
    return min(alone, 400.0), min(max(together / alone, 1.0), 20.0)


def _ratio(excess: Any, variance: Any, block: int) -> float:
    whole = len(excess) // block * block
    sums = excess[len(excess) - whole :].reshape(-1, block).sum(axis=1)
    spreads = variance[len(variance) - whole :].reshape(-1, block).sum(axis=1)
    ratio = sums[spreads > 0] ** 2 / spreads[spreads > 0]
    return float(np.median(ratio)) / 0.455 if len(ratio) >= 8 else 1.0

"""What is usual: for each kind of traffic, how its requests' times were spread over the days before.

A request is scored by how many thresholds of its own kind it exceeds. `body` counts the median, the upper quartile and
the ninetieth percentile, which sees a stage that grew a little for everyone; `tail` counts the 95th, which sees a few
requests that grew a lot. Scores are compared with what the reference gives for the same traffic, so a mix that changes
moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.attribution.jit import kernel
from tailtrace.analytics.detection.counts import Counts

LEVELS: Final = ((0.5, 0.75, 0.9), (0.95,))
"""Quantiles of each statistic: body, tail."""
STATISTICS: Final = ("body", "tail")
FEWEST: Final = 200
"""Requests that a kind needs in the reference to be judged by its own thresholds."""
POOLED: Final = 20
"""Requests that a thinner kind needs to be pooled with kinds whose requests took about as long."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Thresholds of groups of kinds. `group` of a kind is -1 where it is too rare to be judged.

    `score`, `mean`, `variance` are by statistic; `score[s, g, k - first_bucket]` is the score of a request.
    """

    group: Any
    requests: Any
    first_bucket: int
    score: Any
    mean: Any
    variance: Any

    def sums(self, cells: Counts, begin: int, end: int, start: int, stop: int) -> tuple[Any, Any, Any, Any]:
        """Of cells [begin, end), by interval of [start, stop): requests, those that are covered, and by statistic
        score minus expectation, and its variance (2 rows each).
        """
        width = stop - start
        total, covered, excess, variance = np.zeros(width), np.zeros(width), np.zeros((2, width)), np.zeros((2, width))
        _add_up(
            cells.interval[begin:end], cells.kind[begin:end], cells.bucket[begin:end], cells.n[begin:end], start,
            self.first_bucket, self.group, self.requests, self.score, self.mean, self.variance, total, covered, excess,
            variance,
        )  # fmt: skip
        return total, covered, excess, variance


@kernel
def _add_up(
    interval: Any, kind: Any, bucket: Any, n: Any, start: int, first_bucket: int, group: Any, requests: Any, score: Any,
    mean: Any, variance: Any, total: Any, covered: Any, excess: Any, spread: Any,
) -> None:  # fmt: skip
    """One pass over cells in order of time: by interval requests, those of a known group, their score beyond the mean,
    and its variance. The reference's own mean is an estimate too: a group of few requests there is expected to be off
    by more.
    """
    last = score.shape[2] - 1
    own = np.zeros(len(requests))
    for i in range(len(interval)):
        at = interval[i] - start
        total[at] += n[i]
        g = group[kind[i]]
        if g >= 0:
            k = min(max(bucket[i] - first_bucket, 0), last)
            covered[at] += n[i]
            own[g] += n[i]
            for s in range(2):
                excess[s, at] += n[i] * (score[s, g, k] - mean[s, g])
        if i + 1 == len(interval) or interval[i + 1] != interval[i]:
            for g in range(len(own)):
                if own[g] > 0.0:
                    seen = own[g] * (1.0 + own[g] / max(requests[g], 1.0))
                    for s in range(2):
                        spread[s, at] += seen * variance[s, g]
                    own[g] = 0.0


@kernel
def histogram(
    interval: Any, kind: Any, bucket: Any, n: Any, usual: Any, first: int, first_bucket: int, out: Any
) -> None:  # fmt: skip
    """Adds cells of intervals that are `usual` (by interval from `first` on) to `out` [kind, bucket]."""
    for i in range(len(interval)):
        if usual[interval[i] - first]:
            out[kind[i], bucket[i] - first_bucket] += n[i]


def build(histogram: Any, first_bucket: int) -> Reference:
    """The reference of a histogram [kind, bucket] of requests."""
    totals = histogram.sum(axis=1)
    group = _groups(histogram, totals)
    count = int(group.max()) + 1 if len(group) else 0
    pooled = np.zeros((max(count, 1), histogram.shape[1]))
    np.add.at(pooled, group[group >= 0], histogram[group >= 0])
    requests = pooled.sum(axis=1)
    cumulative = np.cumsum(pooled, axis=1)
    share = pooled / np.maximum(requests, 1.0)[:, None]
    buckets = np.arange(histogram.shape[1])
    scores, means, variances = [], [], []
    for levels in LEVELS:
        score = np.zeros(pooled.shape)
        for level in levels:
            threshold = (cumulative < level * requests[:, None]).sum(axis=1)
            score += buckets[None, :] > threshold[:, None]
        mean = (share * score).sum(axis=1)
        scores.append(score)
        means.append(mean)
        variances.append(np.maximum((share * score**2).sum(axis=1) - mean**2, 1e-4))
    return Reference(group, requests, first_bucket, np.stack(scores), np.stack(means), np.stack(variances))


def _groups(histogram: Any, totals: Any) -> Any:
    """A group of its own for every kind with enough requests; the thinner ones are put together in order of their
    medians until a group has enough. Traffic that shifts within such a group shifts between like and like.
    """
    group = np.full(len(totals), -1, np.int64)
    own = np.flatnonzero(totals >= FEWEST)
    group[own] = np.arange(len(own))
    thin = np.flatnonzero((totals >= POOLED) & (totals < FEWEST))
    if not len(thin):
        return group
    medians = (np.cumsum(histogram[thin], axis=1) < 0.5 * totals[thin, None]).sum(axis=1)
    thin = thin[np.argsort(medians, kind="stable")]
    number = np.floor((np.cumsum(totals[thin]) - totals[thin]) / FEWEST).astype(np.int64)
    if totals[thin][number == number[-1]].sum() < FEWEST:
        number[number == number[-1]] = max(int(number[-1]) - 1, 0)
    if totals[thin].sum() >= FEWEST:
        group[thin] = len(own) + np.unique(number, return_inverse=True)[1]
    return group

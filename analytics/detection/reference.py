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

    `score`, `mean`, `variance` are by statistic; `score[s][g, k - first_bucket]` is the score of a request.
    """

    group: Any
    requests: Any
    first_bucket: int
    score: tuple[Any, ...]
    mean: tuple[Any, ...]
    variance: tuple[Any, ...]

    def sums(self, cells: Counts, begin: int, end: int, start: int, stop: int) -> tuple[Any, Any, Any, Any]:
        """Of cells [begin, end), by interval of [start, stop): requests, those that are covered, and by statistic
        score minus expectation, and its variance (2 rows each).
        """
        width = stop - start
        at = cells.interval[begin:end] - start
        n, kind = cells.n[begin:end], cells.kind[begin:end]
        group = self.group[kind]
        known = group >= 0
        total = np.bincount(at, n, width)
        at, n, group = at[known], n[known], group[known]
        bucket = np.clip(cells.bucket[begin:end][known] - self.first_bucket, 0, self.score[0].shape[1] - 1)
        covered = np.bincount(at, n, width)
        groups = len(self.requests)
        by_group = np.bincount(at * groups + group, n, width * groups).reshape(width, groups)
        # The reference's own mean is an estimate too: a group of few requests there is expected to be off by more.
        spread = by_group * (1.0 + by_group / np.maximum(self.requests, 1.0))
        excess, variance = np.zeros((2, width)), np.zeros((2, width))
        for s in range(2):
            seen = np.bincount(at, n * self.score[s][group, bucket], width)
            excess[s] = seen - by_group @ self.mean[s]
            variance[s] = spread @ self.variance[s]
        return total, covered, excess, variance


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
    return Reference(group, requests, first_bucket, tuple(scores), tuple(means), tuple(variances))


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

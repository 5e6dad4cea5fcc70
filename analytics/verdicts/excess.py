"""What there is to explain: by how much each stage grew against the reference, and whether that is more than noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.observed import STAGES, Floats, Requests

View = Literal["whole", "first"]
BLOCKS: Final = 10


@dataclass(frozen=True, slots=True)
class Excess:
    """Means are ns a request. `grown` holds, by stage, what counts as excess (0 where it is noise or went down)."""

    view: View
    before: float
    during: float
    stage_before: Floats
    stage_during: Floats
    grown: Floats

    @property
    def total(self) -> float:
        return float(self.grown.sum())

    @property
    def relative(self) -> float:
        return self.total / self.before if self.before > 0 else float("inf") if self.total > 0 else 0.0

    @property
    def slower(self) -> bool:
        """Whether it is worth a verdict."""
        return self.relative >= limit.SLOWER.value


def excess(before: Requests, during: Requests, view: View) -> Excess | None:
    """Stage by stage; None when either side has too few requests. The error is that of means over blocks of time, so
    that requests which waited together do not count as many. A few blocks with long queues make the mean's own error
    large; then the share of requests above the reference's P90 tells whether the stage is slower.
    """
    usual, now = _rows(before, view), _rows(during, view)
    if min(len(usual[0]), len(now[0])) < limit.FEW_REQUESTS.value:
        return None
    mean_before, error_before = _mean(*usual)
    mean_during, error_during = _mean(*now)
    difference = mean_during - mean_before
    error = np.hypot(error_before, error_during)
    total = float(mean_before.sum())
    clear = (difference > limit.SIGNIFICANT.value * error) | (exceeding(usual, now) > limit.EXCEEDING.value)
    counts = clear & (difference > limit.STAGE_EXCESS.value * total)
    grown = np.where(counts, difference, 0.0)
    return Excess(view, total, float(mean_during.sum()), mean_before, mean_during, grown)


def exceeding(usual: tuple[Floats, Floats], now: tuple[Floats, Floats]) -> Floats:
    """By stage, the rise of the share of requests above the reference's P90, in standard errors of it."""
    high = np.quantile(usual[1], 0.9, axis=0)
    before, error_before = _mean(usual[0], (usual[1] > high).astype(np.float64))
    during, error_during = _mean(now[0], (now[1] > high).astype(np.float64))
    error = np.hypot(error_before, error_during)
    # A stage that none or all exceed in every block has no error to measure by: it is left to the mean.
    return np.asarray(np.where(error > 0, (during - before) / np.maximum(error, 1e-12), 0.0), np.float64)


def single_excess(before: Requests, one: Requests, view: View) -> Excess | None:
    """One request against the usual one; None when there are too few to say what is usual."""
    usual, now = _rows(before, view), _rows(one, view)
    if len(usual[0]) < limit.FEW_REQUESTS.value or len(now[0]) != 1:
        return None
    matrix, own = usual[1], now[1][0]
    middle = matrix.mean(axis=0)
    total = float(middle.sum())
    grown = np.where(own - middle > limit.STAGE_EXCESS.value * total, own - middle, 0.0)
    return Excess(view, total, float(own.sum()), middle, own, grown)


def stage_grown(found: Excess, stage: str) -> float:
    """Excess of one stage, ns a request."""
    return float(found.grown[STAGES.index(stage)])


def _rows(requests: Requests, view: View) -> tuple[Floats, Floats]:
    matrix = requests.whole if view == "whole" else requests.first
    keep = requests.ok & np.isfinite(matrix).all(axis=1)
    return requests.start_ns[keep].astype(np.float64), matrix[keep]


def _mean(start: Floats, matrix: Floats) -> tuple[Floats, Floats]:
    """(mean, standard error of it) by stage."""
    mean = matrix.mean(axis=0)
    span = max(float(start.max() - start.min()), 1.0)
    block = np.minimum((start - start.min()) / span * BLOCKS, BLOCKS - 1).astype(np.int64)
    counts = np.bincount(block, minlength=BLOCKS).astype(np.float64)
    sums = np.stack([np.bincount(block, matrix[:, k], BLOCKS) for k in range(matrix.shape[1])], axis=1)
    off = sums - counts[:, None] * mean
    used = int((counts > 0).sum())
    error = np.sqrt((off**2).sum(axis=0) * used / max(used - 1, 1)) / len(start)
    return mean, error

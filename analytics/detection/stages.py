"""Which stage a change comes from: the one whose time grew most among requests of the same kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Growth:
    """Mean time of a stage a request before and after, ns, at the traffic of after; `share` of all growth."""

    stage: str
    before_ns: float
    after_ns: float
    share: float


def growth(stages: list[str], before: tuple[Any, Any], after: tuple[Any, Any]) -> list[Growth]:
    """Stages by how much they grew, most first. Each side is (requests [kind], stage sums ns [kind, stage]); kinds that
    only one side has are left out. Shares are of what grew, so they sum to 1 over the stages that did.
    """
    both = (before[0] > 0) & (after[0] > 0)
    if not both.any():
        return []
    weight = after[0][both] / after[0][both].sum()
    means = [weight @ (sums[both] / n[both, None]) for n, sums in (before, after)]
    change = np.maximum(means[1] - means[0], 0.0)
    total = float(change.sum()) or 1.0
    order = np.argsort(means[0] - means[1], kind="stable")
    return [Growth(stages[i], float(means[0][i]), float(means[1][i]), float(change[i] / total)) for i in order]

"""Which stage a change comes from: the one whose time grew most among like requests, beyond its own noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

SURE: Final = 4.0


@dataclass(frozen=True, slots=True)
class StageCells:
    """Requests and time by stage of each interval and kind of traffic: `n` [cell], `sums` ns [cell, stage]."""

    interval: Any
    kind: Any
    n: Any
    sums: Any


@dataclass(frozen=True, slots=True)
class Growth:
    """Mean time of a stage a request before and after, ns, at the traffic of after; `share` of all growth.

    `z`: the growth in standard errors of a range as long as after, from how intervals spread before.
    """

    stage: str
    before_ns: float
    after_ns: float
    share: float
    z: float


def growth(stages: Sequence[str], before: StageCells, after: StageCells) -> list[Growth]:
    """Stages by how much they grew: those beyond chance by the time they grew, then the others.

    Kinds that only one side has are left out. Shares are of what grew beyond chance, so they sum to 1 over it.
    """
    kinds = int(max(before.kind.max(initial=-1), after.kind.max(initial=-1))) + 1
    sides = [_by_kind(cells, kinds) for cells in (before, after)]
    both = (sides[0][0] > 0) & (sides[1][0] > 0)
    if not both.any():
        return []
    usual = np.zeros_like(sides[0][1])
    usual[both] = sides[0][1][both] / sides[0][0][both, None]
    then, now = (_excess(cells, usual, both) for cells in (before, after))
    n = now[0].sum()
    change = now[1].sum(axis=0) / n
    means = sides[1][0][both] @ usual[both] / n
    error = _spread(*then) * np.sqrt(1.0 / n + 1.0 / then[0].sum())
    z = change / np.maximum(error, 1.0)
    sure = (z > SURE) & (change > 0)
    grew = np.where(sure if sure.any() else change > 0, np.maximum(change, 0.0), 0.0)
    total = float(grew.sum()) or 1.0
    order = np.lexsort((-change, -grew))
    return [
        Growth(stages[i], float(means[i]), float(means[i] + change[i]), float(grew[i] / total), float(z[i]))
        for i in order
    ]


def _by_kind(cells: StageCells, kinds: int) -> tuple[Any, Any]:
    n = np.bincount(cells.kind, cells.n, kinds)
    sums = np.zeros((kinds, cells.sums.shape[1]))
    np.add.at(sums, cells.kind, cells.sums)
    return n, sums


def _excess(cells: StageCells, usual: Any, both: Any) -> tuple[Any, Any]:
    """By interval: requests, and time of each stage beyond what their kinds usually take."""
    use = both[cells.kind]
    at = np.unique(cells.interval[use], return_inverse=True)[1]
    n = np.bincount(at, cells.n[use])
    excess = np.zeros((len(n), cells.sums.shape[1]))
    np.add.at(excess, at, cells.sums[use] - cells.n[use, None] * usual[cells.kind[use]])
    return n, excess


def _spread(n: Any, excess: Any) -> Any:
    """Standard deviation of one request's excess, as intervals show it, by stage."""
    return np.sqrt((excess**2 / np.maximum(n, 1.0)[:, None]).mean(axis=0))

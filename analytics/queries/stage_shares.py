"""Stage columns as the lists of the JSON: only stages above zero, vocabulary order, shares of the whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.stages import REQUEST_STAGES, STAGES

ROW_COLUMNS: Final[tuple[str, ...]] = tuple(f"{stage.column}Ns" for stage in STAGES)
ROLLUP_COLUMNS: Final[tuple[str, ...]] = (*(f"{stage.column}Ns" for stage in REQUEST_STAGES), "UnexplainedNs")


@dataclass(frozen=True, slots=True)
class StageShare:
    """Time in one stage and its share of the whole, 0 to 1."""

    stage: str
    duration_ns: int
    share: float
    derived: bool


def stage_shares(
    row: Mapping[str, Any], whole_ns: int, *, derived: Collection[str] = (), suffix: str = "Ns"
) -> list[StageShare]:
    """Stages of a row of `requests` (or of a rollup's sums) that took any time. `suffix` "TtftNs" reads the part
    before the first token.
    """
    shares = []
    for stage in STAGES:
        spent = int(row.get(stage.column + suffix) or 0)
        if spent > 0:
            shares.append(StageShare(stage.name, spent, spent / whole_ns if whole_ns else 0.0, stage.name in derived))
    return shares


def largest(shares: list[StageShare]) -> StageShare | None:
    """The stage that took most; None where there is none."""
    return max(shares, key=lambda share: share.duration_ns, default=None)

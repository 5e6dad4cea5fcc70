"""Stages that grew while the request did not: work that moved, or that something else made up for (FBDetect's cost
shift, SOSP 2024). Worth knowing, nothing to wake anyone for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.detection.stages import Growth, StageCells, growth

CLEARLY: Final = 6.0
"""Standard errors that a stage has to grow by, in each of the hours."""
OF_ITSELF: Final = 0.10
OF_REQUEST: Final = 0.01
FEWEST: Final = 100
"""Requests that each hour needs."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A stage's growth in the newest hour, and what the whole request grew by, ns."""

    stage: Growth
    request_before_ns: float
    request_after_ns: float


def shifts(stages: Sequence[str], before: StageCells, hours: Sequence[StageCells]) -> list[Shift]:
    """Stages that grew clearly in every one of the hours, by at least a tenth of themselves and a hundredth of the
    request. That the request is flat is the caller's to know: its series says so better than one hour can.
    """
    found: dict[str, Shift] = {}
    for number, hour in enumerate(hours):
        if float(hour.n.sum()) < FEWEST:
            return []
        grown = growth(stages, before, hour)
        whole = sum(each.before_ns for each in grown), sum(each.after_ns for each in grown)
        now = {each.stage: Shift(each, *whole) for each in grown if is_shift(each, whole[0])}
        found = {stage: shift for stage, shift in now.items() if number == 0 or stage in found}
    return list(found.values())


def is_shift(grown: Growth, request_ns: float) -> bool:
    """Whether a growth is clear and large enough to be listed."""
    change = grown.after_ns - grown.before_ns
    return grown.z > CLEARLY and change >= max(OF_ITSELF * grown.before_ns, OF_REQUEST * request_ns)

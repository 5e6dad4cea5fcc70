"""The lab: an inference service in miniature, with faults of known cause.

`history` and `history_metrics` make OTLP bodies of a scenario in virtual time, `truth` says what was done to it;
`LiveLab` runs it with real servers, `PacedLab` simulates it in step with the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailtrace.lab.ground_truth import Truth, truth
from tailtrace.lab.scenario import Scenario, list_scenarios
from tailtrace.lab.telemetry.counters import history_metrics
from tailtrace.lab.telemetry.history import history

if TYPE_CHECKING:
    from tailtrace.lab.live import LiveLab
    from tailtrace.lab.paced import PacedLab

__all__ = ["LiveLab", "PacedLab", "Scenario", "Truth", "history", "history_metrics", "list_scenarios", "truth"]


def __getattr__(name: str) -> Any:
    # uvicorn and httpx only where something is run: history needs neither.
    if name == "LiveLab":
        from tailtrace.lab.live import LiveLab

        return LiveLab
    if name == "PacedLab":
        from tailtrace.lab.paced import PacedLab

        return PacedLab
    raise AttributeError(name)

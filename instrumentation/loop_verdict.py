"""Why an event loop was late: a decision tree over what the loop, its thread and a sleeping probe thread show.

Pure computation. Thresholds were taken from an experiment on two CPUs, quiet and contended, with each cause made on
purpose (docs/counters.md has it). Several causes hold at once on a busy machine: time is split, not labelled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LATE_LOOP_S: Final = 0.005
"""A loop whose 99th percentile is below this lost nothing worth a cause."""
LATE_PROBE_S: Final = 0.001
LATE_PROBE_P99_S: Final = 0.004
STARVED_SHARE: Final = 0.8
BUSY_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Window:
    """One window of `length_s`. Lags and lateness in seconds; `loop_cpu` and `loop_queue` are shares of the window."""

    length_s: float
    lags: Sequence[float]
    late: Sequence[float]
    queued: Sequence[float]
    loop_cpu: float
    loop_queue: float


def quantile(values: Sequence[float], q: float) -> float:
    """Nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[math.ceil(q * len(ordered)) - 1] if ordered else 0.0


def split(window: Window) -> dict[str, float]:
    """Seconds lost by cause (cpu_starved, gil, loop_cpu, loop_blocked); they sum to the loop's lateness, or are none.

    The probe late and waiting for a CPU: too few CPUs. Late without that: the interpreter is held, by the loop itself
    where its thread ran (or wanted to), else by another thread. Probe on time and loop late: a call that blocks, or
    native code that lets the interpreter go, told apart by the same. The probe counts at its median; where only its
    tail is late, starvation explains no more than what the probe itself waited.
    """
    lost = sum(window.lags)
    if not lost or quantile(window.lags, 0.99) < LATE_LOOP_S:
        return {}
    late, queued = sum(window.late), sum(window.queued)
    median_late = quantile(window.late, 0.5) >= LATE_PROBE_S
    tail_late = quantile(window.late, 0.99) >= LATE_PROBE_P99_S
    share = min(1.0, queued / late) if late else 0.0
    starved = 0.0
    if median_late:
        starved = lost if share >= STARVED_SHARE else lost * share
    elif tail_late:
        # The probe looks more rarely than the loop: what it waited stands for its share of the window.
        starved = min(lost, queued * len(window.lags) / len(window.late))
    busy = window.loop_cpu + window.loop_queue >= BUSY_SHARE
    rest = "loop_cpu" if busy else "gil" if median_late else "loop_blocked"
    parts = {"cpu_starved": starved, rest: lost - starved}
    return {cause: seconds for cause, seconds in parts.items() if seconds > 0}

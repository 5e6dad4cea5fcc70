"""Whether a GPU also runs somebody else's processes, so that its counters are not the service's alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.observed import Observed
from tailtrace.analytics.verdicts.verdict import Evidence

REASON: Final = "the GPU is shared with another process: its counters do not say whose work they count"


def strangers(before: Observed, during: Observed, gpus: Sequence[str]) -> tuple[Evidence, ...]:
    """Evidence of processes on any of the GPUs beyond the service's replicas there, or beyond those of the reference;
    empty where there are none or nobody counted.
    """
    most = 0.0
    for gpu in gpus:
        usual = _processes(before, gpu)
        now = _processes(during, gpu)
        if now is None:  # they are counted rarely, and the window may be short
            now = usual
        if now is None:
            continue
        # A replica that served nothing in a short window still has its process.
        known, serving = _replicas(before, gpu), _replicas(during, gpu)
        most = max(most, now - max(1, len(known | serving)))
        if usual is not None:
            most = max(most, now - usual - len(serving - known))
    if most < limit.SHARED.value:
        return ()
    return (Evidence("other processes on the GPU", most, limit.SHARED.value, limit.SHARED.source),)


def _processes(seen: Observed, gpu: str) -> float | None:
    found = seen.counters.attributes("tailtrace.gpu.processes", gpu)
    return sum(found.values()) if found else None


def _replicas(seen: Observed, gpu: str) -> set[str]:
    return {replica for replica, group in seen.gpus.items() if gpu in group}

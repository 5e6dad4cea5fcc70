"""What each marker did: like requests before it and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tailtrace.analytics.jobs.change_cause import BEFORE_S
from tailtrace.analytics.jobs.markers import Marker, save
from tailtrace.analytics.queries.compare import PercentileChange, compare
from tailtrace.analytics.queries.selection import Selection
from tailtrace.ingest.store import Store

AFTER_S: Final = 1800
WAIT_S: Final = 6 * 3600
"""After this long it is said that there were too few requests."""
AT_ONCE: Final = 4
LEAST: Final = 0.01
_ROWS: Final = 6_000


def judge_markers(store: Store, markers: Sequence[Marker], complete_s: int) -> list[Marker]:
    """Judge markers of a service that have half an hour behind them, a few in a round; gives those it judged."""
    due = [
        each for each in markers if each.service and each.effect is None and each.time_ms / 1000 <= complete_s - AFTER_S
    ]
    made = []
    for marker in sorted(due, key=lambda each: -each.time_ms)[:AT_ONCE]:
        effect = _effect(store, marker, complete_s)
        if effect is not None:
            made.append(replace(marker, effect=effect))
    save(store, made)
    return made


def _effect(store: Store, marker: Marker, complete_s: int) -> dict[str, Any] | None:
    at = marker.time_ms // 1000
    until = min(complete_s, at + WAIT_S)
    sides = [Selection(marker.service, a * 10**9, b * 10**9) for a, b in ((at - BEFORE_S, at), (at, until))]
    found = compare(store, sides[0], sides[1], limit=_ROWS)
    n = [found.a.n, found.b.n]
    sure = [each for each in found.changes if each.metric == "duration" and not each.hollow]
    if not sure:
        return {"verdict": "too_few", "n": n} if complete_s - at >= WAIT_S else None
    change = next((each for each in sure if verdict(each) != "no_different"), sure[0])
    return {
        "verdict": verdict(change),
        "metric": "duration",
        "q": change.q,
        "before_ns": change.a_ns,
        "after_ns": change.b_ns,
        "like_traffic_ns": change.within_ns,
        "interval_ns": [change.within_low_ns, change.within_high_ns],
        "n": n,
    }


def verdict(change: PercentileChange) -> str:
    """slower or faster where like traffic surely is, by a hundredth at least; else no_different."""
    least = LEAST * change.a_ns
    if change.within_low_ns > 0 and change.within_ns > least:
        return "slower"
    return "faster" if change.within_high_ns < 0 and -change.within_ns > least else "no_different"

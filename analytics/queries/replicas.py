"""Whether replicas are evenly loaded, by work and not by request count, and how much more they could take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.queries.fleet import Fleet, read_fleet
from tailtrace.analytics.queries.selection import Selection
from tailtrace.analytics.queries.whatif import Change, load
from tailtrace.analytics.statistics.percentiles import needed, rank
from tailtrace.analytics.statistics.replay import replay
from tailtrace.ingest.store import Store

_MOST: Final = 16.0
_HALVINGS: Final = 7


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """One replica. `work_ns` is the predicted GPU time of its requests; `busy` that over the window.

    `queued_*` are means over the window (Little's law: sum of waits over its length). `speed` is how many times as long
    as the fleet's its steps take. `first_unix_ns`: its first request, later than the window's start for a new one.
    """

    replica: str
    requests: int
    request_share: float
    input_tokens: int
    output_tokens: int
    work_ns: int
    work_share: float
    busy: float
    queued_requests: float
    queued_tokens: float
    queued_work_ns: float
    queue_p95_ns: int
    duration_p95_ns: int
    hollow: bool
    speed: float
    first_unix_ns: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """Until P95 of the time inside the engines doubles: `factor` times the arrivals (null: beyond 16 times)."""

    factor: float | None
    per_second_now: float
    per_second_left: float | None
    tokens_per_second_now: float
    tokens_per_second_left: float | None


@dataclass(frozen=True, slots=True)
class Replicas:
    """`imbalance` is the busiest replica's work over the mean (1 = even); by requests, the same of counts.

    `reason` says why there is no answer.
    """

    service: str
    since_unix_ns: str
    until_unix_ns: str
    filters: dict[str, str]
    n: int
    replicas: list[ReplicaLoad]
    imbalance: float | None
    imbalance_by_requests: float | None
    load: float | None
    capacity: Capacity | None
    fitted_to: str | None
    reason: str | None


def replicas(store: Store, selection: Selection) -> Replicas:
    """Load of each replica that ran requests of the selection, busiest first."""
    sample, fleet, reason = read_fleet(store, selection)
    head = (selection.service, str(selection.since_ns), str(selection.until_ns), dict(selection.filters), sample.rows)
    if fleet is None:
        return Replicas(*head, [], None, None, None, None, None, reason)
    engine = fleet.engine
    work = engine.times.work_ns(fleet.prompts, fleet.outputs, engine.limit) * engine.speed[fleet.replica]
    entries = [_replica(fleet, index, work) for index in range(len(fleet.replicas))]
    entries.sort(key=lambda entry: (-entry.work_ns, entry.replica))
    return Replicas(
        *head,
        entries,
        _imbalance([entry.work_ns for entry in entries]),
        _imbalance([entry.requests for entry in entries]),
        load(fleet, Change()),
        _capacity(fleet),
        fleet.engine.times.source,
        None,
    )


def _imbalance(values: list[int]) -> float | None:
    return max(values) * len(values) / sum(values) if sum(values) else None


def _window_ns(fleet: Fleet) -> float:
    start = fleet.sample.number("start")
    return max(1.0, float((start + fleet.sample.number("duration")).max() - start.min()))


def _replica(fleet: Fleet, index: int, work: Any) -> ReplicaLoad:
    mine = fleet.replica == index
    length = _window_ns(fleet)
    queue = fleet.queue_ns[mine].astype(np.float64)
    n = int(mine.sum())
    at = rank(0.95, n) - 1
    rows = fleet.inside[mine]
    inputs = np.maximum(fleet.sample.number("input_tokens")[rows], 0)
    return ReplicaLoad(
        replica=fleet.replicas[index],
        requests=n,
        request_share=n / len(fleet.replica),
        input_tokens=int(inputs.sum()),
        output_tokens=int(fleet.outputs[mine].sum()),
        work_ns=int(work[mine].sum()),
        work_share=float(work[mine].sum() / work.sum()),
        busy=float(work[mine].sum() / length),
        queued_requests=float(queue.sum() / length),
        queued_tokens=float((queue * fleet.prompts[mine]).sum() / length),
        queued_work_ns=float((queue * work[mine]).sum() / length),
        queue_p95_ns=int(np.partition(queue, at)[at]),
        duration_p95_ns=int(np.partition(fleet.sample.number("duration")[rows], at)[at]),
        hollow=n < needed(0.95),
        speed=float(fleet.engine.speed[index]),
        first_unix_ns=str(int(fleet.sample.number("start")[rows].min())),
    )


def _capacity(fleet: Fleet) -> Capacity:
    """Bisection on the arrival rate; the replay of the unchanged fleet at its own rate is what is doubled."""
    start = fleet.queued_ns - fleet.queued_ns.min()
    free = np.full(len(start), -1)

    def p95(factor: float) -> float:
        arrivals = start / factor
        done = replay(arrivals, fleet.prompts, fleet.outputs, free, fleet.engine)
        return float(np.quantile(done.last_ns - arrivals, 0.95))

    factor = _largest(p95, 2.0 * p95(1.0))
    seconds = _window_ns(fleet) / 1e9
    now = len(start) / seconds
    tokens = float((fleet.prompts + fleet.outputs).sum()) / seconds
    return Capacity(
        factor,
        now,
        None if factor is None else now * (factor - 1),
        tokens,
        None if factor is None else tokens * (factor - 1),
    )


def _largest(p95: Callable[[float], float], bound: float) -> float | None:
    """The largest factor whose P95 stays below the bound, to 1 %; None where even the most does."""
    low, high = 1.0, 2.0
    while p95(high) < bound:
        low, high = high, high * 2
        if low >= _MOST:
            return None
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if p95(middle) < bound else (low, middle)
    return low

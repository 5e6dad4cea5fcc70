"""What a percentile would be if a stage were faster, replicas were added or more came: the queue replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tailtrace.analytics.queries.fleet import BEFORE_QUEUE, Fleet, column, read_fleet
from tailtrace.analytics.queries.request_sample import RequestSample
from tailtrace.analytics.queries.selection import Metric, Selection
from tailtrace.analytics.statistics.percentiles import needed, rank
from tailtrace.analytics.statistics.replay import Engine, Replayed, replay
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store
from tailtrace.stages import BY_NAME

QUANTILES: Final = (0.5, 0.95, 0.99)
_METRICS: Final[tuple[Metric, ...]] = ("duration", "ttft")
_ENGINE: Final = ("queue", "prefill", "decode")
_UNSTABLE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """What is supposed: `stages` take so many times as long (0 = gone), `replicas` more of them (less when negative),
    ready `startup_s` into the window, `rate` times the arrivals.
    """

    stages: Mapping[str, float] = field(default_factory=dict)
    replicas: int = 0
    startup_s: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Observed and predicted in ns. `retime_ns` is the retimed path with every wait in queues as observed: the error
    of leaving the queue out is the difference. `hollow`: fewer than 10/(1-q) requests.
    """

    metric: str
    q: float
    now_ns: int
    predicted_ns: int
    retime_ns: int
    hollow: bool


@dataclass(frozen=True, slots=True)
class StageMean:
    stage: str
    now_ns: int
    predicted_ns: int


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`method` is replay, or retime where `reason` says why no queue could be replayed.

    `load_now` and `load_then` are work over capacity in GPU time; at 1 and above the queue grows as long as it lasts
    (`stable` false), and the figures depend on the length of the window. `base_error` is how far the replay of the
    unchanged fleet is from what was observed, at P95 of the time inside the engine.
    """

    service: str
    since_unix_ns: str
    until_unix_ns: str
    filters: dict[str, str]
    n: int
    stages: dict[str, float]
    added_replicas: int
    startup_s: float
    rate: float
    method: str
    reason: str | None
    predictions: list[Prediction]
    means: list[StageMean]
    replicas_now: int
    replicas_then: int
    load_now: float | None
    load_then: float | None
    stable: bool | None
    fitted_to: str | None
    fitted: int
    base_error: float | None
    assumptions: list[str]


def whatif(store: Store, selection: Selection, change: Change, *, quantiles: Sequence[float] = QUANTILES) -> WhatIf:
    """The answer for requests that end well. Raises Rejected for a change that cannot be."""
    _check(change)
    sample, fleet, reason = read_fleet(store, selection)
    changed = _Changed.of(sample, fleet, change)
    codes, outcomes = sample.text("outcome")
    well = np.array([text in selection.outcomes for text in outcomes] or [False])[codes] if sample.rows else codes < 0
    predictions = [
        prediction
        for metric in _METRICS
        for q in quantiles
        if (prediction := _predicted(metric, q, sample, changed, well & sample.has(metric))) is not None
    ]
    replicas_now = len(fleet.replicas) if fleet else 0
    then = load(fleet, change) if fleet else None
    return WhatIf(
        service=selection.service,
        since_unix_ns=str(selection.since_ns),
        until_unix_ns=str(selection.until_ns),
        filters=dict(selection.filters),
        n=int(well.sum()),
        stages=dict(change.stages),
        added_replicas=change.replicas,
        startup_s=change.startup_s,
        rate=change.rate,
        method="replay" if fleet else "retime",
        reason=reason or None,
        predictions=predictions,
        means=_means(sample, changed, well),
        replicas_now=replicas_now,
        replicas_then=max(1, replicas_now + change.replicas) if fleet else 0,
        load_now=load(fleet, Change()) if fleet else None,
        load_then=then,
        stable=None if then is None else then < _UNSTABLE,
        fitted_to=fleet.engine.times.source if fleet else None,
        fitted=fleet.engine.times.fitted if fleet else 0,
        base_error=_base_error(fleet) if fleet else None,
        assumptions=_assumptions(fleet, change),
    )


def _check(change: Change) -> None:
    for stage, factor in change.stages.items():
        if stage not in BY_NAME:
            raise Rejected(f"there is no stage {stage[:40]!r}")
        if not 0 <= factor <= 100:
            raise Rejected(f"a stage takes 0 to 100 times as long; got {factor}")
    if not 0.01 <= change.rate <= 100:
        raise Rejected(f"arrivals change by a factor of 0.01 to 100; got {change.rate}")
    if not -1000 <= change.replicas <= 1000 or not 0 <= change.startup_s <= 86_400:
        raise Rejected("up to 1000 replicas, up and ready within a day")


@dataclass(frozen=True, slots=True)
class _Changed:
    """What each row gains in ns (negative: saves): retimed alone, and with the queue replayed; by stage."""

    retimed: Mapping[str, Any]
    replayed: Mapping[str, Any]

    @staticmethod
    def of(sample: RequestSample, fleet: Fleet | None, change: Change) -> _Changed:
        retimed = {
            stage: (factor - 1.0) * column(sample, stage)
            for stage, factor in change.stages.items()
            if stage in sample.stages
        }
        if fleet is None:
            return _Changed(retimed, retimed)
        replayed = {stage: gain for stage, gain in retimed.items() if stage not in _ENGINE}
        changed = _replayed(fleet, change)
        for stage, observed, before, after in zip(
            _ENGINE,
            (fleet.queue_ns, fleet.prefill_ns, fleet.decode_ns),
            _engine_times(fleet.queued_ns, fleet.base),
            _engine_times(_arrivals(fleet, change), changed),
            strict=True,
        ):
            gain = np.zeros(sample.rows)
            # What the replay does not model of the observed stays, shrinking as its stage shrinks.
            left = min(1.0, after.sum() / before.sum()) if before.sum() > 0 else 1.0
            gain[fleet.inside] = np.maximum(after + left * (observed - before), 0.0) - observed
            if change.stages.get(stage) == 0:
                gain = -column(sample, stage).astype(np.float64)
            replayed[stage] = gain
        return _Changed(retimed, replayed)


def _arrivals(fleet: Fleet, change: Change) -> Any:
    """When requests reach the queue: what is faster before it brings them earlier, more arrivals come closer."""
    saved = sum(
        (factor - 1.0) * column(fleet.sample, stage)[fleet.inside]
        for stage, factor in change.stages.items()
        if stage in BEFORE_QUEUE
    )
    start = fleet.sample.number("start")[fleet.inside] - fleet.origin_ns
    return start / change.rate + (fleet.queued_ns - start) + saved


def _replayed(fleet: Fleet, change: Change) -> Replayed:
    engine = fleet.engine
    times = engine.times.scaled(
        prefill=change.stages.get("prefill", 1.0) or 1e-6, decode=change.stages.get("decode", 1.0) or 1e-6
    )
    speed, ready, fixed = engine.speed, engine.ready_ns, fleet.replica
    if change.replicas > 0:
        speed = np.append(speed, np.full(change.replicas, float(np.median(speed))))
        ready = np.append(ready, np.full(change.replicas, change.startup_s * 1e9))
    elif change.replicas < 0:
        kept = max(1, len(speed) + change.replicas)
        speed, ready = speed[:kept], ready[:kept]
    if change.replicas or change.rate != 1.0:
        fixed = np.full(len(fleet.replica), -1)
    changed = Engine(times, engine.limit, engine.budget, speed, ready)
    return replay(_arrivals(fleet, change), fleet.prompts, fleet.outputs, fixed, changed)


def _engine_times(queued: Any, found: Replayed) -> tuple[Any, Any, Any]:
    return found.scheduled_ns - queued, found.first_ns - found.scheduled_ns, found.last_ns - found.first_ns


def load(fleet: Fleet, change: Change) -> float:
    """Work over capacity, both in GPU time, at the full batch: 1 is as much as the replicas can do."""
    times = fleet.engine.times.scaled(
        prefill=change.stages.get("prefill", 1.0), decode=change.stages.get("decode", 1.0)
    )
    work = float(times.work_ns(fleet.prompts, fleet.outputs, fleet.engine.limit).sum())
    start = fleet.sample.number("start")[fleet.inside]
    length = max(1.0, float(start.max() - start.min())) / change.rate
    replicas = max(1, len(fleet.replicas) + change.replicas)
    return work * float(np.mean(fleet.engine.speed)) / (length * replicas)


def _predicted(metric: Metric, q: float, sample: RequestSample, changed: _Changed, rows: Any) -> Prediction | None:
    n = int(rows.sum())
    if n == 0:
        return None
    now = sample.number(metric)[rows].astype(np.float64)
    retimed = np.maximum(0.0, now + _gain(metric, sample, changed.retimed)[rows])
    replayed = np.maximum(0.0, now + _gain(metric, sample, changed.replayed)[rows])
    at = rank(q, n) - 1
    values = [round(float(np.partition(each, at)[at])) for each in (now, replayed, retimed)]
    return Prediction(metric, q, values[0], values[1], values[2], n < needed(q))


def _gain(metric: Metric, sample: RequestSample, gains: Mapping[str, Any]) -> Any:
    """The gain of the whole, or of what lies before the first token: of a stage as large a share as it has there."""
    total = np.zeros(sample.rows)
    for stage, gain in gains.items():
        if metric == "duration" or stage in ("queue", "prefill"):
            total += gain
        elif stage != "decode" and stage in sample.stages:
            whole = np.maximum(column(sample, stage), 1)
            total += gain * sample.number(f"f_{stage}") / whole
    return total


def _means(sample: RequestSample, changed: _Changed, rows: Any) -> list[StageMean]:
    if not rows.any():
        return []
    found = []
    for stage in dict.fromkeys([*sample.stages, *changed.replayed]):
        now = column(sample, stage)[rows].astype(np.float64)
        then = np.maximum(0.0, now + changed.replayed[stage][rows]) if stage in changed.replayed else now
        found.append(StageMean(stage, round(float(now.mean())), round(float(then.mean()))))
    return found


def _base_error(fleet: Fleet) -> float:
    observed = np.quantile(fleet.queue_ns + fleet.prefill_ns + fleet.decode_ns, 0.95)
    modelled = np.quantile(fleet.base.last_ns - fleet.queued_ns, 0.95)
    return float(modelled / observed - 1.0) if observed > 0 else 0.0


def _assumptions(fleet: Fleet | None, change: Change) -> list[str]:
    if fleet is None:
        return ["queues stay as they were: only the changed stage's own time is counted"]
    found = [
        f"up to {fleet.engine.limit} sequences and {fleet.engine.budget} tokens a step, first come first served",
        "requests, prompts, answers and cache hits stay as observed",
    ]
    if change.replicas or change.rate != 1.0:
        found.append("each request goes to the replica with the fewest outstanding ones")
    if change.replicas > 0:
        found.append("new replicas are as fast as the median one, with caches as warm")
    if fleet.kv_full_share > 0.02:
        found.append(f"KV memory is not modelled, and was full in {fleet.kv_full_share:.0%} of the sampled steps")
    if fleet.engine.times.source == "requests":
        found.append("no engine steps are stored: step times were fitted to the requests alone")
    if len(np.unique(fleet.models)) > 1:
        found.append("several models are in this selection; filter by model for one fleet")
    return found

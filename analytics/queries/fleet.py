"""The replicas behind a service as a replay needs them: who ran what when, and how long a step takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.queries.request_sample import RequestSample, request_sample
from tailtrace.analytics.queries.selection import Selection
from tailtrace.analytics.statistics.replay import Engine, Replayed, replay
from tailtrace.analytics.statistics.step_times import StepTimes, concurrency, from_requests, from_steps
from tailtrace.ingest.store import Store

MAX_ROWS: Final = 50_000
OUTCOMES: Final = ("ok", "error", "cancelled", "timeout")  # whatever may have occupied an engine
DEFAULT_BUDGET: Final = 8192  # tokens a step, where no step was seen: vLLM's usual max_num_batched_tokens
# Stages between the request's start and its place in the engine's queue.
BEFORE_QUEUE: Final = (
    "net_in", "auth", "rate_limit", "admission", "parse", "guardrail", "cache_lookup", "route", "dispatch", "template",
    "tokenize", "mm_encode", "engine_submit", "external", "app", "custom",
)  # fmt: skip
_STEPS: Final = """
SELECT Replica AS replica, ifNull(PrefillTokens, 0) AS prompts, ifNull(DecodeTokens, 0) AS decodes,
  toInt64(DurationNs) AS duration, ifNull(Running, 0) AS running, ifNull(Waiting, 0) AS waiting,
  ifNull(KvUsage, 0) AS kv, toUInt32OrZero(Attributes['tailtrace.sample_weight']) AS weight
FROM engine_steps
WHERE Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND Replica IN {replicas:Array(String)} AND DurationNs > 0
ORDER BY cityHash64(Time, EngineId) LIMIT 200000
"""


@dataclass(frozen=True, slots=True)
class Steps:
    """Sampled engine steps, arrays by step; `replica` are positions in the fleet's replicas."""

    replica: Any
    prompts: Any
    decodes: Any
    duration_ns: Any
    running: Any
    waiting: Any
    kv_usage: Any
    weight: Any

    def __len__(self) -> int:
        return len(self.duration_ns)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Requests that reached an engine, arrays by request in the sample's order, and the engine that was fitted.

    `inside` are their positions in the sample. Times are ns from `origin_ns`. `calibrated`: the fit is from requests
    and was scaled until the replay of the unchanged fleet decodes as fast as the fleet did.
    """

    sample: RequestSample
    inside: Any
    replicas: list[str]
    replica: Any
    models: Any
    origin_ns: int
    queued_ns: Any
    queue_ns: Any
    prefill_ns: Any
    decode_ns: Any
    prompts: Any
    outputs: Any
    steps: Steps
    engine: Engine
    base: Replayed
    kv_full_share: float


def column(sample: RequestSample, stage: str) -> Any:
    """Time of a stage by row, 0 where no request has any."""
    return sample.number(f"s_{stage}") if stage in sample.stages else np.zeros(sample.rows, np.int64)


def read_steps(store: Store, selection: Selection, replicas: list[str]) -> Steps:
    table = store.query_arrow(
        _STEPS, {"since": selection.since_ns, "until": selection.until_ns, "replicas": replicas}, role="ui"
    )
    at = {name: index for index, name in enumerate(replicas)}
    numbers = {name: table[name].to_numpy() for name in table.column_names if name != "replica"}
    return Steps(
        np.array([at[name] for name in table["replica"].to_pylist()], np.int64),
        numbers["prompts"].astype(np.int64),
        numbers["decodes"].astype(np.int64),
        numbers["duration"],
        numbers["running"],
        numbers["waiting"],
        numbers["kv"],
        np.maximum(numbers["weight"], 1),
    )


def read_fleet(store: Store, selection: Selection) -> tuple[RequestSample, Fleet | None, str]:
    """The requests, and the fleet behind them; without one, the reason."""
    everything = Selection(
        selection.service, selection.since_ns, selection.until_ns, selection.filters, OUTCOMES, selection.is_root
    )
    sample = request_sample(store, everything, attributes=("replica", "model", "outcome"), limit=MAX_ROWS, thin=False)
    if not sample.rows:
        return sample, None, "no requests in this range"
    if int(sample.number("weight").max()) > 1:
        return sample, None, "only a sample of the requests is stored, and a queue needs all arrivals"
    codes, names = sample.text("replica")
    queue, prefill, decode = (column(sample, stage) for stage in ("queue", "prefill", "decode"))
    decode = decode + column(sample, "preempted")
    named = np.array([bool(name) for name in names] or [False])
    inside = np.flatnonzero(named[codes] & (prefill > 0) & (sample.number("input_tokens") > 0))
    if len(inside) < 100:
        return sample, None, "fewer than 100 requests have a replica, tokens and a prefill"
    used, replica = np.unique(codes[inside], return_inverse=True)
    replicas = [names[code] for code in used]
    before = sum(column(sample, stage) for stage in BEFORE_QUEUE)[inside]
    origin = int(sample.number("start").min())
    queued = sample.number("start")[inside] - origin + before
    outputs = sample.number("output_tokens")[inside]
    tpot = sample.number("tpot")[inside]
    pace = float(np.median(tpot[tpot > 0])) if (tpot > 0).any() else 0.0
    guessed = decode[inside] / pace if pace else np.ones(len(inside))
    outputs = np.maximum(1, np.where(outputs >= 0, outputs, guessed)).astype(np.int64)
    cached = np.maximum(sample.number("cached_tokens")[inside], 0)
    prompts = np.maximum(sample.number("input_tokens")[inside] - cached, 1)
    steps = read_steps(store, selection, replicas)
    model_codes, _ = sample.text("model")
    begin = queued + queue[inside]
    beside = concurrency(begin, begin + prefill[inside] + decode[inside], replica)
    given = int(sample.number("batch_limit")[inside].max())
    seen = int(steps.running.max()) if len(steps) else int(np.ceil(beside.max()))
    limit = given or max(seen, 1)
    times = from_steps(steps.prompts, steps.decodes, steps.duration_ns, limit) if len(steps) else None
    if times is None:
        times = from_requests(prompts, prefill[inside], tpot, beside, limit)
    if times is None:
        return sample, None, "too few engine steps and too few timed requests to fit a step's time"
    engine = _engine(times, steps, replicas, limit)
    engine, base = _calibrated(engine, times.source, queued, prompts, outputs, replica, decode[inside])
    fleet = Fleet(
        sample=sample, inside=inside, replicas=replicas, replica=replica, models=model_codes[inside], origin_ns=origin,
        queued_ns=queued, queue_ns=queue[inside], prefill_ns=prefill[inside], decode_ns=decode[inside],
        prompts=prompts, outputs=outputs, steps=steps, engine=engine, base=base,
        kv_full_share=float((steps.kv_usage >= 0.95).mean()) if len(steps) else 0.0,
    )  # fmt: skip
    return sample, fleet, ""


def _engine(times: StepTimes, steps: Steps, replicas: list[str], limit: int) -> Engine:
    speed = np.ones(len(replicas))
    if len(steps) and times.source == "steps":
        expected = times.step_ns(steps.prompts, steps.decodes)
        for index in range(len(replicas)):
            mine = steps.replica == index
            if mine.sum() >= 50:
                speed[index] = steps.duration_ns[mine].sum() / expected[mine].sum()
    budget = int((steps.prompts + steps.decodes).max()) if len(steps) else DEFAULT_BUDGET
    return Engine(times, limit, max(budget, limit + 1), speed, np.zeros(len(replicas)))


def _calibrated(
    engine: Engine, source: str, queued: Any, prompts: Any, outputs: Any, replica: Any, decode_ns: Any
) -> tuple[Engine, Replayed]:
    """The replay of the unchanged fleet, each request on its own replica."""
    base = replay(queued, prompts, outputs, replica, engine)
    if source == "steps":
        return engine, base
    for _ in range(3):
        decoded = (base.last_ns - base.first_ns).sum()
        ratio = float(decode_ns.sum() / decoded) if decoded > 0 and decode_ns.sum() > 0 else 1.0
        engine = Engine(
            engine.times.scaled(prefill=ratio, decode=ratio), engine.limit, engine.budget, engine.speed, engine.ready_ns
        )
        base = replay(queued, prompts, outputs, replica, engine)
    return engine, base

"""A made week of one service and model: daily load, a mix of chat and code that drifts, noise that lasts, and a change.

Token lengths are those of real requests (the lab's excerpt of a public trace); how long a stage takes is invented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.detection.counts import PER_DAY, Counts, counts
from tailtrace.analytics.detection.stages import StageCells
from tailtrace.analytics.judge import stratum
from tailtrace.lab.arrivals import excerpt

STAGES: Final = (
    "net_in", "auth", "parse", "template", "tokenize", "queue", "prefill", "decode", "engine_return", "detokenize",
    "stream_out", "finalize",
)  # fmt: skip
METRICS: Final = ("duration", "ttft", "tpot")
_AT: Final = {name: index for index, name in enumerate(STAGES)}
_FIRST_TOKEN: Final = 7
_MINUTES: Final = 5


@dataclass(frozen=True, slots=True)
class Change:
    """From interval `at` on, `stage` takes `factor` times as long, plus `added_ns`; for `length` intervals or on."""

    stage: str
    at: int
    factor: float = 1.0
    added_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Week:
    """Requests of a series in order of time: interval, stratum, and ns by stage."""

    interval: Any
    stratum: Any
    stages: Any
    output: Any

    def values(self, metric: str) -> Any:
        if metric == "duration":
            return self.stages.sum(axis=1)
        if metric == "ttft":
            return self.stages[:, :_FIRST_TOKEN].sum(axis=1)
        return self.stages[:, _AT["decode"]] / np.maximum(self.output - 1, 1)

    def counts(self, metric: str) -> Counts:
        bucket = np.ceil(np.log(np.maximum(self.values(metric), 1.0)) / np.log(1.02)).astype(np.int64)
        return counts(self.interval, self.stratum, bucket, np.ones(len(bucket), np.int64))

    def cells(self, begin: int, end: int, metric: str) -> StageCells:
        """Requests of intervals [begin, end), each a cell, with the time that the metric is about by stage; kinds are
        those of the whole week.
        """
        kind = np.unique(self.stratum, return_inverse=True)[1]
        use = (self.interval >= begin) & (self.interval < end)
        stages = self.stages[use]
        if metric == "ttft":
            stages[:, _FIRST_TOKEN:] = 0.0
        elif metric == "tpot":
            stages[:, :_FIRST_TOKEN] = 0.0
        return StageCells(self.interval[use], kind[use], np.ones(int(use.sum())), stages)


def week(
    seed: int,
    series: int,
    *,
    days: float,
    per_minute: float = 40.0,
    change: Change | None = None,
    mix_step: int | None = None,
) -> Week:
    """A series of `days`; with `mix_step`, a quarter of the traffic turns from chat to code at that interval."""
    draw = np.random.default_rng([seed, series])
    length = int(days * PER_DAY)
    time = np.arange(length)
    peak, swing = draw.uniform(0, 24), draw.uniform(0.3, 0.5)
    load = per_minute * (1.0 + swing * np.cos((time / 12.0 - peak) * np.pi / 12.0))
    code = 0.35 + 0.15 * np.sin(time / PER_DAY * 2 * np.pi / draw.uniform(2.0, 6.0) + draw.uniform(0, 6.3))
    if mix_step is not None:
        code = np.clip(code + np.where(time >= mix_step, 0.25, 0.0), 0.0, 1.0)
    minute_n = draw.poisson(np.repeat(load, _MINUTES))
    interval = np.repeat(np.repeat(time, _MINUTES), minute_n)
    n = len(interval)
    per_minute_before = np.repeat(np.concatenate((minute_n[:1], minute_n[:-1])), minute_n)
    is_code = draw.random(n) < code[interval]
    tokens = np.zeros((2, n), np.int64)
    for source, use in (("conv", ~is_code), ("code", is_code)):
        _, inputs, outputs = excerpt(source)
        at = draw.integers(0, len(inputs), int(use.sum()))
        tokens[0, use], tokens[1, use] = inputs[at], outputs[at]
    cached = np.where(draw.random(n) < 0.3, draw.uniform(0.2, 0.9, n), 0.0)
    stages = _stages(draw, tokens, cached, (load / per_minute)[interval], _noise(draw, length)[:, interval])
    if change is not None:
        hit = interval >= change.at
        stages[hit, _AT[change.stage]] *= change.factor
        stages[hit, _AT[change.stage]] += change.added_ns * draw.exponential(1.0, int(hit.sum()))
    kind = stratum.mix(
        [
            stratum.bucket(tokens[0], stratum.INPUT_TOKENS, np.ones(n, np.bool_)),
            stratum.bucket(tokens[1], stratum.OUTPUT_TOKENS, np.ones(n, np.bool_)),
            stratum.bucket(cached, stratum.CACHED_SHARE, np.ones(n, np.bool_)),
            stratum.load_bucket(per_minute_before.astype(np.float64)),
        ]
    )
    return Week(interval, kind, stages, tokens[1])


def _noise(draw: np.random.Generator, length: int, *, spread: float = 0.005, keeps: float = 0.7) -> Any:
    """Two factors near 1 (prefill, decode) that wander: AR(1) by interval."""
    steps = draw.normal(0.0, spread * np.sqrt(1 - keeps**2), (2, length))
    for at in range(1, length):
        steps[:, at] += keeps * steps[:, at - 1]
    return np.exp(steps)


def _stages(draw: np.random.Generator, tokens: Any, cached: Any, load: Any, noise: Any) -> Any:
    """ns by request and stage."""
    n = tokens.shape[1]

    def spread(sigma: float) -> Any:
        return np.exp(draw.normal(0.0, sigma, n))

    ms = 1e6
    stages = np.zeros((n, len(STAGES)))
    for name, median in (
        ("net_in", 0.4), ("auth", 3.5), ("parse", 1.1), ("template", 0.8), ("engine_return", 0.5), ("detokenize", 2.0),
        ("stream_out", 4.0), ("finalize", 0.6),
    ):  # fmt: skip
        stages[:, _AT[name]] = median * ms * spread(0.35)
    stages[:, _AT["tokenize"]] = (0.6 + 0.0032 * tokens[0]) * ms * spread(0.2)
    waits = draw.random(n) < 0.25 * load
    stages[:, _AT["queue"]] = (0.3 + np.where(waits, draw.exponential(60.0 * load, n), 0.0)) * ms
    stages[:, _AT["prefill"]] = (8.0 + 0.09 * tokens[0] * (1 - cached)) * ms * spread(0.15) * noise[0]
    stages[:, _AT["decode"]] = tokens[1] * (14.0 + 4.0 * load) * ms * spread(0.12) * noise[1]
    return stages

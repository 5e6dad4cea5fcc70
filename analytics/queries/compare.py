"""From A to B: what changed a service's percentiles, the traffic or the service, and which stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailtrace.analytics.judge import stratum
from tailtrace.analytics.queries.request_sample import STAGE_NAMES, RequestSample, request_sample
from tailtrace.analytics.queries.selection import Metric, Selection
from tailtrace.analytics.statistics.decomposition import Change, decompose, sides
from tailtrace.analytics.statistics.euler import whole_numbers
from tailtrace.analytics.statistics.percentiles import needed
from tailtrace.analytics.statistics.strata import Strata, match
from tailtrace.ingest.store import Store

MAX_ROWS: Final = 20_000
_METRICS: Final[tuple[Metric, ...]] = ("duration", "ttft")
QUANTILES: Final = (0.5, 0.95, 0.99)
# What makes two groups of requests incomparable when it differs; the first that differs is named first.
CONDITIONS: Final = (
    "model", "precision", "quantization", "engine", "engine_version", "gpu_model", "tp", "pp", "max_batch",
    "streaming", "route", "version", "replica", "tenant", "client_region",
)  # fmt: skip
_STRATIFY: Final = ("model", "precision", "engine", "tp", "streaming")
_DIFFERS: Final = 0.1
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Group:
    """One side: how many requests match, how many rows were read."""

    service: str
    since_unix_ns: str
    until_unix_ns: str
    filters: dict[str, str]
    n: int
    sampled: int


@dataclass(frozen=True, slots=True)
class ValueShare:
    value: str
    share: float


@dataclass(frozen=True, slots=True)
class Condition:
    """A column whose values are spread differently; `distance` is the share that would have to move (0 to 1)."""

    name: str
    distance: float
    a: list[ValueShare]
    b: list[ValueShare]


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the change in ns with its 95 % interval; parts above 0 made it slower."""

    name: str
    change_ns: int
    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True)
class PercentileChange:
    """`traffic` (mix, new, vanished) and `stages` (the same traffic served differently) sum to `change_ns`.

    `within_ns` is the sum of `stages`. `simpson`: the percentile moved one way while the same traffic moved the other.
    `hollow`: fewer than 10/(1-q) requests on a side.
    """

    metric: str
    q: float
    a_ns: int
    b_ns: int
    change_ns: int
    low_ns: int
    high_ns: int
    traffic: list[Term]
    within_ns: int
    within_low_ns: int
    within_high_ns: int
    stages: list[Term]
    simpson: bool
    hollow: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """A and B, the conditions that differ, and the change of each percentile.

    `common_a` and `common_b` are the shares of either side that lie in `strata` kinds of traffic which both sides have.
    """

    a: Group
    b: Group
    conditions: list[Condition]
    strata: int
    common_a: float
    common_b: float
    changes: list[PercentileChange]


def compare(
    store: Store, a: Selection, b: Selection, *, quantiles: Sequence[float] = QUANTILES, limit: int = MAX_ROWS
) -> Comparison:
    """A against B on duration and TTFT. What the two selections differ in by intention (a filter) is no traffic."""
    chosen = {name for name in {*a.filters, *b.filters} if a.filters.get(name) != b.filters.get(name)}
    samples = [request_sample(store, one, attributes=CONDITIONS, limit=limit) for one in (a, b)]
    common = match(*(_levels(sample, chosen) for sample in samples))
    shares = [
        float(sample.weights[strata >= 0].sum() / sample.weights.sum()) if sample.rows else 0.0
        for sample, strata in zip(samples, (common.a, common.b), strict=True)
    ]
    changes = [change for metric in _METRICS for change in _changes(metric, samples[0], samples[1], common, quantiles)]
    return Comparison(
        _group(a, samples[0]), _group(b, samples[1]), _conditions(samples), common.count, shares[0], shares[1], changes
    )


def _group(selection: Selection, sample: RequestSample) -> Group:
    return Group(
        selection.service, str(selection.since_ns), str(selection.until_ns), dict(selection.filters), sample.n,
        sample.rows,
    )  # fmt: skip


def _levels(sample: RequestSample, chosen: set[str]) -> list[Any]:
    """Keys of the kinds of traffic, finest first: everything, then without load, then without cache and with tokens in
    coarser steps, then without answers' lengths.
    """
    fixed = [_hashes(sample, name) for name in _STRATIFY if name not in chosen]
    inputs, outputs, cached = (sample.number(f"{name}_tokens") for name in ("input", "output", "cached"))
    asked = stratum.bucket(inputs, stratum.INPUT_TOKENS, inputs >= 0)
    answered = stratum.bucket(outputs, stratum.OUTPUT_TOKENS, outputs >= 0)
    hit = np.where((cached >= 0) & (inputs > 0), cached / np.maximum(inputs, 1), 0.0)
    share = stratum.bucket(hit, stratum.CACHED_SHARE, cached >= 0)
    load = stratum.load_bucket(sample.number("offered_load"))
    keys = [
        [*fixed, asked, answered, share, load],
        [*fixed, asked, answered, share],
        [*fixed, asked // 2, answered // 2],
        [*fixed, asked // 2],
    ]
    return [stratum.mix(parts) for parts in keys]


def _hashes(sample: RequestSample, name: str) -> Any:
    codes, texts = sample.text(name)
    hashes = stratum.text_hash(pa.array(texts, pa.string()))
    return hashes[codes] if len(texts) else np.zeros(sample.rows, np.uint64)


def _conditions(samples: Sequence[RequestSample]) -> list[Condition]:
    """Columns whose values are spread differently by more than a tenth, in the order of CONDITIONS."""
    found = []
    for name in CONDITIONS:
        spread = [_spread(sample, name) for sample in samples]
        values = {*spread[0], *spread[1]}
        distance = 0.5 * sum(abs(spread[0].get(value, 0.0) - spread[1].get(value, 0.0)) for value in values)
        if distance > _DIFFERS and all(spread):
            found.append(Condition(name, distance, _largest(spread[0]), _largest(spread[1])))
    return found


def _spread(sample: RequestSample, name: str) -> dict[str, float]:
    codes, texts = sample.text(name)
    mass = np.bincount(codes, sample.weights, len(texts)) if sample.rows else np.zeros(0)
    return {text: float(part / mass.sum()) for text, part in zip(texts, mass, strict=True)} if mass.sum() else {}


def _largest(spread: dict[str, float]) -> list[ValueShare]:
    top = sorted(spread.items(), key=lambda each: (-each[1], each[0]))[:_SHOWN]
    return [ValueShare(value, share) for value, share in top]


def _changes(
    metric: Metric, a: RequestSample, b: RequestSample, common: Strata, quantiles: Sequence[float]
) -> list[PercentileChange]:
    names = [name for name in STAGE_NAMES if name in a.stages or name in b.stages]
    known = [sample.has(metric) for sample in (a, b)]
    rows = [
        (sample.number(metric)[has].astype(np.float64), _parts(sample, metric, names)[has], sample.weights[has])
        for sample, has in zip((a, b), known, strict=True)
    ]
    both = sides(rows[0], rows[1], Strata(common.a[known[0]], common.b[known[1]], common.count))
    found = []
    for q in quantiles:
        change = decompose(q, *both, common.count)
        if change is not None:
            few = min(int(known[0].sum()), int(known[1].sum())) < needed(q)
            found.append(_rounded(metric, q, change, names, few))
    return found


def _parts(sample: RequestSample, metric: Metric, names: Sequence[str]) -> Any:
    own = sample.parts(metric)
    at = {name: index for index, name in enumerate(sample.stages)}
    return np.stack([own[:, at[name]] if name in at else np.zeros(sample.rows) for name in names], axis=1)


def _rounded(metric: str, q: float, change: Change, names: Sequence[str], hollow: bool) -> PercentileChange:
    """Whole nanoseconds that still sum: traffic and stages to the change."""
    a_ns, b_ns = round(change.value[0]), round(change.value[1])
    parts = [*change.value[3:6], *change.value[7:]]
    whole = whole_numbers(parts, b_ns - a_ns)
    lows, highs = [*change.low[3:6], *change.low[7:]], [*change.high[3:6], *change.high[7:]]
    terms = [
        Term(name, value, min(value, round(low)), max(value, round(high)))
        for name, value, low, high in zip(("mix", "new", "vanished", *names), whole, lows, highs, strict=True)
    ]
    stages = [term for term in terms[3:] if term.change_ns or term.low_ns or term.high_ns]
    return PercentileChange(
        metric=metric,
        q=q,
        a_ns=a_ns,
        b_ns=b_ns,
        change_ns=b_ns - a_ns,
        low_ns=round(change.low[2]),
        high_ns=round(change.high[2]),
        traffic=terms[:3],
        within_ns=sum(term.change_ns for term in stages),
        within_low_ns=round(change.low[6]),
        within_high_ns=round(change.high[6]),
        stages=sorted(stages, key=lambda term: -abs(term.change_ns)),
        simpson=change.simpson,
        hollow=hollow,
    )

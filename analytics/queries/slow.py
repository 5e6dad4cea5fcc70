"""What slow requests have in common: attributes and stages ranked by how much they differ from the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.queries.request_sample import RequestSample, request_sample
from tailtrace.analytics.queries.selection import ATTRIBUTES, Metric, Selection
from tailtrace.analytics.statistics.contrast import Effect, critical, dominance, mean_difference, share_difference
from tailtrace.analytics.statistics.euler import whole_numbers
from tailtrace.analytics.statistics.percentiles import rank
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

MOST_VALUES: Final = 20
FEWEST: Final = 20
_NUMBERS: Final = ("input_tokens", "output_tokens", "cached_tokens", "offered_load")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value that slow requests have more (delta above 0) or less often, or a number that is larger or smaller.

    For a number `value` is empty and `slow` and `rest` are medians, else shares. `clear`: the interval, which holds for
    all that were looked at together, leaves out no difference.
    """

    name: str
    value: str
    slow: float
    rest: float
    delta: float
    low: float
    high: float
    clear: bool


@dataclass(frozen=True, slots=True)
class StageExtra:
    """Mean time of slow requests in a stage less that of the rest; `share` of all the extra time (they sum to it)."""

    stage: str
    slow_ns: int
    rest_ns: int
    extra_ns: int
    low_ns: int
    high_ns: int
    share: float | None
    delta: float
    clear: bool


@dataclass(frozen=True, slots=True)
class SlowVersusRest:
    """Slow is `threshold_ns` and above. `stages` sum to `extra_ns`, largest first; `attributes` by |delta|, clear ones
    first. `reason` says why there is no answer.
    """

    service: str
    since_unix_ns: str
    until_unix_ns: str
    filters: dict[str, str]
    metric: str
    q: float | None
    threshold_ns: int | None
    n: int
    sampled: int
    slow: int
    rest: int
    extra_ns: int | None
    stages: list[StageExtra]
    attributes: list[Attribute]
    reason: str | None


def slow_versus_rest(
    store: Store, selection: Selection, *, metric: Metric = "duration", q: float = 0.95, threshold_ns: int | None = None
) -> SlowVersusRest:
    """Requests at or above the q-percentile (or `threshold_ns`) against all others of the selection."""
    if not 0 < q < 1:
        raise Rejected(f"q lies between 0 and 1, like 0.95; got {q}")
    names = [name for name in ATTRIBUTES if name not in selection.filters and name != "outcome"]
    sample = request_sample(store, selection, attributes=names)
    known = sample.has(metric) if sample.rows else np.zeros(0, np.bool_)
    values = sample.number(metric)[known]
    limit = threshold_ns
    if limit is None and len(values):
        at = rank(q, len(values)) - 1
        limit = int(np.partition(values, at)[at])
    slow = values >= limit if limit is not None else np.zeros(0, np.bool_)
    counts = (int(slow.sum()), int((~slow).sum()))
    enough = min(counts) >= FEWEST
    stages = _stages(sample, metric, known, slow) if enough else []
    return SlowVersusRest(
        service=selection.service,
        since_unix_ns=str(selection.since_ns),
        until_unix_ns=str(selection.until_ns),
        filters=dict(selection.filters),
        metric=metric,
        q=q if threshold_ns is None else None,
        threshold_ns=limit,
        n=sample.n,
        sampled=sample.rows,
        slow=counts[0],
        rest=counts[1],
        extra_ns=sum(stage.extra_ns for stage in stages) if enough else None,
        stages=stages,
        attributes=_attributes(sample, names, known, slow) if enough else [],
        reason=None if enough else f"{counts[0]} slow and {counts[1]} other requests; {FEWEST} of each are needed",
    )


def _stages(sample: RequestSample, metric: Metric, known: Any, slow: Any) -> list[StageExtra]:
    parts = sample.parts(metric)[known]
    if metric == "tpot":  # time after the first token, per token
        tokens = np.maximum(sample.number("output_tokens")[known] - 1, 1)
        parts = parts / tokens[:, None]
    z = critical(parts.shape[1])
    differences = [mean_difference(parts[slow, k], parts[~slow, k], z) for k in range(parts.shape[1])]
    total = sum(delta for delta, _, _ in differences)
    whole = whole_numbers([delta for delta, _, _ in differences], round(total))
    found = []
    for k, (name, (_, low, high)) in enumerate(zip(sample.stages, differences, strict=True)):
        effect = dominance(parts[slow, k], parts[~slow, k], z)
        rest = round(float(parts[~slow, k].mean()))
        found.append(
            StageExtra(
                name, rest + whole[k], rest, whole[k], round(low), round(high),
                whole[k] / total if total else None, effect.delta, effect.clear,
            )
        )  # fmt: skip
    return sorted(found, key=lambda stage: -stage.extra_ns)


def _attributes(sample: RequestSample, names: list[str], known: Any, slow: Any) -> list[Attribute]:
    numbers = [(name, values) for name in _NUMBERS if (values := _number(sample, name, known)) is not None]
    labels = [(name, *_labels(sample, name, known, slow)) for name in names]
    tests = len(numbers) + sum(len(each[2]) for each in labels)
    z = critical(tests)
    found = []
    for name, values in numbers:
        valid = np.isfinite(values) & (values >= 0)
        a, b = values[valid & slow], values[valid & ~slow]
        if min(len(a), len(b)) >= FEWEST:
            found.append(_attribute(name, "", float(np.median(a)), float(np.median(b)), dominance(a, b, z)))
    n_slow, n_rest = int(slow.sum()), int((~slow).sum())
    for name, texts, of_slow, of_rest in labels:
        for text, k, m in zip(texts, of_slow, of_rest, strict=True):
            effect = share_difference(int(k), n_slow, int(m), n_rest, z)
            found.append(_attribute(name, text, k / n_slow, m / n_rest, effect))
    return sorted(found, key=lambda each: (not each.clear, -abs(each.delta), each.name, each.value))[:50]


def _attribute(name: str, value: str, slow: float, rest: float, effect: Effect) -> Attribute:
    return Attribute(name, value, slow, rest, effect.delta, effect.low, effect.high, effect.clear)


def _number(sample: RequestSample, name: str, known: Any) -> Any:
    values = sample.number(name)[known].astype(np.float64)
    return values if np.isfinite(values).any() and (values >= 0).any() else None


def _labels(sample: RequestSample, name: str, known: Any, slow: Any) -> tuple[list[str], Any, Any]:
    """The commonest values of a column that has more than one, with their counts among slow and other requests."""
    codes, texts = sample.text(name)
    codes = codes[known]
    both = np.bincount(codes, minlength=len(texts))
    if (both > 0).sum() < 2:
        return [], [], []
    top = [int(code) for code in np.argsort(-both, kind="stable")[:MOST_VALUES] if both[code] >= FEWEST]
    of_slow = np.bincount(codes[slow], minlength=len(texts))
    return [texts[code] for code in top], of_slow[top], (both - of_slow)[top]

"""Why there is more waiting: what grew of arrivals, prompts, answers, cache misses, or shrank of replicas and speed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.observed import Floats, Observed, Requests, Steps
from tailtrace.analytics.verdicts.verdict import Evidence


@dataclass(frozen=True, slots=True)
class Tokens:
    """Means a request; `computed` = input not found in the prefix cache."""

    input: float
    input_median: float
    output: float
    cached_share: float

    @property
    def computed(self) -> float:
        return self.input * (1.0 - self.cached_share)


@dataclass(frozen=True, slots=True)
class Demand:
    """Ratios of during to before. `logs`: by how much each cause made the fleet busier (log of a ratio, may be < 0)."""

    arrivals: float
    before: Tokens
    during: Tokens
    logs: dict[str, float]
    input_cause: str
    output_cause: str
    tail: bool

    @property
    def input_ratio(self) -> float:
        return _ratio(self.during.input, self.before.input)

    @property
    def output_ratio(self) -> float:
        return _ratio(self.during.output, self.before.output)

    def evidence(self, cause: str) -> tuple[Evidence, ...]:
        """The reading that shows the cause."""
        mix = limit.MIX
        texts = {
            "capacity": [
                Evidence("arrivals / reference", self.arrivals, float(np.exp(limit.DRIVER.value)), limit.DRIVER.source)
            ],
            "longer_input": [Evidence("input tokens / reference", self.input_ratio, mix.value, mix.source)],
            "longer_output": [Evidence("output tokens / reference", self.output_ratio, mix.value, mix.source)],
            "traffic_changed": [
                Evidence("input tokens / reference", self.input_ratio, mix.value, mix.source),
                Evidence("output tokens / reference", self.output_ratio, mix.value, mix.source),
            ],
            "cache_miss": [
                Evidence(
                    "share of input tokens from the prefix cache",
                    self.during.cached_share,
                    self.before.cached_share,
                    "the reference",
                )
            ],
        }
        heavy = [
            Evidence("input tokens / reference, mean", self.input_ratio, mix.value, mix.source),
            Evidence(
                "input tokens / reference, median",
                _ratio(self.during.input_median, self.before.input_median),
                None,
                limit.TAIL.source,
            ),
        ]
        return tuple(texts.get(cause, heavy if cause in ("head_of_line", "prefill_interference") else []))


def demand(before: Observed, during: Observed, own: Requests | None = None) -> Demand:
    """Compares the two windows' traffic, weighing prompt and answer tokens by the GPU time they take. With `own`, one
    request of the second window, its tokens are the ones that its own stages are explained by.
    """
    a, b = tokens(before.requests), tokens(during.requests)
    arrivals = _ratio(len(during.requests) / during.seconds, len(before.requests) / before.seconds)
    expected = len(before.requests) / before.seconds * during.seconds
    if abs(len(during.requests) - expected) < limit.SIGNIFICANT.value * np.sqrt(expected):
        arrivals = 1.0
    prompt, answer = token_costs(before.steps, before.requests)
    base = prompt * a.computed + answer * a.output
    longer = prompt * b.input * (1.0 - a.cached_share) + answer * a.output
    missed = prompt * b.computed + answer * a.output
    whole = prompt * b.computed + answer * b.output
    mixed, tail = _mixed(a, b)
    heavy = _ratio(b.input, a.input) >= limit.MIX.value and tail
    input_cause = "head_of_line" if heavy else "traffic_changed" if mixed else "longer_input"
    output_cause = "traffic_changed" if mixed else "longer_output"
    logs: dict[str, float] = {"capacity": _log(arrivals), "cache_miss": _log(_ratio(missed, longer))}
    logs[input_cause] = _log(_ratio(longer, base))
    logs[output_cause] = logs.get(output_cause, 0.0) + _log(_ratio(whole, missed))
    if own is not None:
        # Whether a few prompts around it were large cannot be told from the few that there were.
        return Demand(arrivals, a, tokens(own), logs, "longer_input", "longer_output", False)
    return Demand(arrivals, a, b, logs, input_cause, output_cause, heavy)


def tokens(requests: Requests) -> Tokens:
    """Token counts of the requests that ended well."""
    asked, made = requests.input_tokens[requests.ok], requests.output_tokens[requests.ok]
    cached = np.nan_to_num(requests.cached_tokens[requests.ok])
    known = np.isfinite(asked)
    total = float(asked[known].sum())
    return Tokens(
        _mean(asked),
        float(np.median(asked[known])) if known.any() else float("nan"),
        _mean(made),
        float(cached[known].sum()) / total if total else 0.0,
    )


def token_costs(steps: Steps, requests: Requests) -> tuple[float, float]:
    """GPU ns of a prompt token and of an answer token, from steps; the usual proportion where there are none."""
    weight = steps.duration_ns * steps.weight
    pure = (np.nan_to_num(steps.prefill_tokens) == 0) & (steps.decode_tokens > 0)
    prefill = np.nan_to_num(steps.prefill_tokens) > 0
    if pure.sum() < 5 or prefill.sum() < 5:
        return (1.0, 25.0)
    answer = float(weight[pure].sum() / (steps.decode_tokens * steps.weight)[pure].sum())
    typical = float(np.median(steps.duration_ns[pure]))
    beyond = np.maximum(steps.duration_ns[prefill] - typical, 0.2 * steps.duration_ns[prefill])
    return float(beyond.sum() / steps.prefill_tokens[prefill].sum()), answer


def _mixed(a: Tokens, b: Tokens) -> tuple[bool, bool]:
    """(both lengths changed, a few large prompts among ordinary ones)."""
    up = limit.MIX.value
    changed = [ratio >= up or ratio <= 1.0 / up for ratio in (_ratio(b.input, a.input), _ratio(b.output, a.output))]
    tail = _ratio(b.input, a.input) >= limit.TAIL.value * _ratio(b.input_median, a.input_median)
    return all(changed), tail and not changed[1]


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _ratio(now: float, usual: float) -> float:
    return now / usual if usual > 0 and np.isfinite(now) else 1.0


def _log(ratio: float) -> float:
    return float(np.log(ratio)) if ratio > 0 else -10.0

"""How long one step of a continuous-batching engine takes, fitted to observed steps or to the requests alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

_BINS_PER_OCTAVE: Final = 4
_FEWEST_STEPS: Final = 50


@dataclass(frozen=True, slots=True)
class StepTimes:
    """`decode_ns[b]` of a step that decodes b sequences; a step with prompts costs `prompt_ns` at `prompt_tokens`.

    A mixed step costs the larger of the two: weights are read once for both. Beyond the last point the last slope goes
    on. `source` is "steps" or "requests", `fitted` how many of them.
    """

    decode_ns: Any
    prompt_tokens: Any
    prompt_ns: Any
    source: str
    fitted: int

    def step_ns(self, prompt_tokens: Any, decodes: Any) -> Any:
        """Time of steps in ns, by arrays of their prompt tokens and decoding sequences."""
        decodes = np.asarray(decodes)
        decode = self.decode_ns[np.minimum(decodes, len(self.decode_ns) - 1)]
        prompt = interpolate(np.asarray(prompt_tokens, np.float64) + decodes, self.prompt_tokens, self.prompt_ns)
        return np.where(np.asarray(prompt_tokens) > 0, np.maximum(decode, prompt), decode)

    def work_ns(self, prompt_tokens: Any, output_tokens: Any, batch: int) -> Any:
        """GPU time of requests in ns where `batch` decode together: prompts alone, a share of each decode step."""
        batch = max(1, min(batch, len(self.decode_ns) - 1))
        prompt = interpolate(np.asarray(prompt_tokens, np.float64), self.prompt_tokens, self.prompt_ns)
        base = self.decode_ns[batch] / batch
        # A prompt rides along with the decodes of its step: only what exceeds their time is its own.
        own = np.maximum(0.0, prompt - np.where(np.asarray(output_tokens) > 1, self.decode_ns[batch], 0.0))
        return np.maximum(own, 0.1 * prompt) + base * np.maximum(output_tokens, 1)

    def scaled(self, *, prefill: float = 1.0, decode: float = 1.0) -> StepTimes:
        return replace(self, decode_ns=self.decode_ns * decode, prompt_ns=self.prompt_ns * prefill)


def interpolate(at: Any, xs: Any, ys: Any) -> Any:
    """Straight lines between points, the last slope beyond them, never below the first point's value."""
    inside = np.interp(at, xs, ys)
    if len(xs) < 2:
        return inside
    slope = max(0.0, (ys[-1] - ys[-2]) / (xs[-1] - xs[-2]))
    return np.where(at > xs[-1], ys[-1] + slope * (at - xs[-1]), inside)


def from_steps(prompt_tokens: Any, decodes: Any, duration_ns: Any, limit: int) -> StepTimes | None:
    """Fitted to engine steps (arrays by step), up to `limit` sequences; None where there are too few of a kind."""
    plain = (prompt_tokens == 0) & (decodes > 0)
    if int(plain.sum()) < _FEWEST_STEPS:
        return None
    decode = _decode_curve(decodes[plain], duration_ns[plain].astype(np.float64), limit)
    mixed = prompt_tokens > 0
    tokens = (prompt_tokens + decodes)[mixed].astype(np.float64)
    prompts = _prompt_curve(tokens, duration_ns[mixed].astype(np.float64))
    if prompts is None:
        return None
    return StepTimes(decode, *prompts, source="steps", fitted=len(duration_ns))


def from_requests(prompt_tokens: Any, prefill_ns: Any, tpot_ns: Any, concurrency: Any, limit: int) -> StepTimes | None:
    """Fitted to requests: their time per token against how many decoded beside them, their prefill against its tokens.

    Both hold what other requests' prompts took, so they are upper bounds; the replay scales them to its own base.
    """
    paced = (tpot_ns > 0) & (concurrency >= 0.5)
    if int(paced.sum()) < _FEWEST_STEPS:
        return None
    beside = np.maximum(1, np.rint(concurrency[paced])).astype(np.int64)
    decode = _decode_curve(beside, tpot_ns[paced].astype(np.float64), limit)
    known = (prompt_tokens > 0) & (prefill_ns > 0)
    prompts = _prompt_curve(prompt_tokens[known].astype(np.float64), prefill_ns[known].astype(np.float64))
    return None if prompts is None else StepTimes(decode, *prompts, source="requests", fitted=int(paced.sum()))


def _decode_curve(batch: Any, time_ns: Any, limit: int) -> Any:
    """Mean time by batch size 0 to `limit`, never falling; beyond the sizes seen the straight line through all."""
    size = np.arange(limit + 1)
    batch = np.minimum(batch, limit)
    n = np.bincount(batch, minlength=limit + 1).astype(np.float64)
    mean = np.bincount(batch, time_ns, limit + 1) / np.maximum(n, 1)
    seen = np.flatnonzero(n)
    fitted = isotonic(mean[seen], n[seen])
    curve = np.interp(size, seen, fitted)
    if len(seen) > 1:
        slope = max(0.0, float(np.polyfit(seen, fitted, 1, w=np.sqrt(n[seen]))[0]))
        curve = np.where(size > seen[-1], fitted[-1] + slope * (size - seen[-1]), curve)
    return curve


def _prompt_curve(tokens: Any, time_ns: Any) -> tuple[Any, Any] | None:
    """Mean time by quarter octave of tokens, never falling; None for too few."""
    if len(tokens) < _FEWEST_STEPS // 2:
        return None
    bins, at = np.unique(np.floor(_BINS_PER_OCTAVE * np.log2(np.maximum(tokens, 1))), return_inverse=True)
    n = np.bincount(at, minlength=len(bins)).astype(np.float64)
    return np.bincount(at, tokens) / n, isotonic(np.bincount(at, time_ns) / n, n)


def isotonic(values: Any, weights: Any) -> Any:
    """The closest never-falling sequence in weighted squares (pool adjacent violators)."""
    level: list[float] = []
    weight: list[float] = []
    size: list[int] = []
    for value, own in zip(values.tolist(), weights.tolist(), strict=True):
        level.append(value)
        weight.append(own)
        size.append(1)
        while len(level) > 1 and level[-2] > level[-1]:
            whole = weight[-2] + weight[-1]
            level[-2] = (level[-2] * weight[-2] + level[-1] * weight[-1]) / whole
            weight[-2], size[-2] = whole, size[-2] + size[-1]
            level.pop(), weight.pop(), size.pop()
    return np.repeat(level, size)


def concurrency(begin_ns: Any, end_ns: Any, replica: Any) -> Any:
    """Of each interval, how many intervals of its replica were open beside it on average, itself included."""
    found = np.zeros(len(begin_ns))
    for one in np.unique(replica):
        rows = np.flatnonzero(replica == one)
        begin, end = begin_ns[rows].astype(np.float64), np.maximum(end_ns[rows], begin_ns[rows]).astype(np.float64)
        times = np.concatenate((begin, end))
        order = np.argsort(times, kind="stable")
        at = times[order]
        open_ = np.cumsum(np.where(order < len(rows), 1, -1))
        area = np.concatenate(([0.0], np.cumsum(open_[:-1] * np.diff(at))))
        length = np.maximum(end - begin, 1.0)
        found[rows] = (np.interp(end, at, area) - np.interp(begin, at, area)) / length
    return found

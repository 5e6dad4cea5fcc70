"""A fleet of continuous-batching engines replayed with observed arrivals and lengths.

First come first served per replica; a step decodes every running sequence and fills its token budget with prompts, as
vLLM's and SGLang's schedulers do. KV memory and preemption are not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tailtrace.analytics.attribution.jit import kernel
from tailtrace.analytics.statistics.step_times import StepTimes


@dataclass(frozen=True, slots=True)
class Engine:
    """`limit` sequences and `budget` tokens a step; `speed` multiplies step times by replica; a replica takes requests
    from `ready_ns` on.
    """

    times: StepTimes
    limit: int
    budget: int
    speed: Any
    ready_ns: Any


@dataclass(frozen=True, slots=True)
class Replayed:
    """By request, ns on the clock of `arrival_ns`: first scheduled, first token, last token; and the replica."""

    scheduled_ns: Any
    first_ns: Any
    last_ns: Any
    replica: Any


def replay(arrival_ns: Any, prompt_tokens: Any, output_tokens: Any, fixed: Any, engine: Engine) -> Replayed:
    """Replays requests (arrays by request, any order). `fixed` is a replica, or -1 for the least outstanding one."""
    order = np.argsort(arrival_ns, kind="stable")
    scheduled, first, last, replica = _replay(
        np.asarray(arrival_ns, np.float64)[order],
        np.maximum(np.asarray(prompt_tokens, np.int64)[order], 1),
        np.maximum(np.asarray(output_tokens, np.int64)[order], 1),
        np.asarray(fixed, np.int64)[order],
        np.asarray(engine.ready_ns, np.float64),
        np.asarray(engine.speed, np.float64),
        engine.limit,
        max(engine.budget, engine.limit + 1),
        np.asarray(engine.times.decode_ns, np.float64),
        np.asarray(engine.times.prompt_tokens, np.float64),
        np.asarray(engine.times.prompt_ns, np.float64),
    )
    back = np.argsort(order, kind="stable")
    return Replayed(scheduled[back], first[back], last[back], replica[back])


@kernel
def _line(at: float, xs: Any, ys: Any) -> float:
    n = len(xs)
    if at <= xs[0]:
        return float(ys[0])
    if at >= xs[n - 1]:
        if n < 2:
            return float(ys[n - 1])
        return float(ys[n - 1] + max(0.0, (ys[n - 1] - ys[n - 2]) / (xs[n - 1] - xs[n - 2])) * (at - xs[n - 1]))
    k = np.searchsorted(xs, at, side="right") - 1
    return float(ys[k] + (ys[k + 1] - ys[k]) / (xs[k + 1] - xs[k]) * (at - xs[k]))


@kernel
def _replay(
    arrival: Any, prompt: Any, output: Any, fixed: Any, ready: Any, speed: Any, limit: int, budget: int, decode_ns: Any,
    xs: Any, ys: Any,
) -> Any:  # fmt: skip
    n, fleet = len(arrival), len(ready)
    scheduled, first, last = np.full(n, -1.0), np.full(n, -1.0), np.full(n, -1.0)
    replica = np.full(n, -1, np.int64)
    left, produced, chunk, after = prompt.copy(), np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, -1, np.int64)
    running, count = np.full((fleet, limit), -1, np.int64), np.zeros(fleet, np.int64)
    head, tail, load = np.full(fleet, -1, np.int64), np.full(fleet, -1, np.int64), np.zeros(fleet, np.int64)
    # The end of a replica's stretch of equal steps, or when an idle one is to start; infinite for nothing to do.
    start, length, steps = np.zeros(fleet), np.zeros(fleet), np.zeros(fleet, np.int64)
    due = np.full(fleet, np.inf)
    i = 0
    while True:
        r = int(np.argmin(due))
        if i < n and arrival[i] <= due[r]:
            r = fixed[i]
            if r < 0:
                fewest = np.int64(1) << 60
                for k in range(fleet):
                    candidate = (i + k) % fleet
                    waiting = load[candidate] + (0 if ready[candidate] <= arrival[i] else np.int64(1) << 40)
                    if waiting < fewest:
                        fewest, r = waiting, candidate
            replica[i] = r
            load[r] += 1
            if head[r] < 0:
                head[r] = i
            else:
                after[tail[r]] = i
            tail[r] = i
            if due[r] == np.inf:
                due[r] = max(arrival[i], ready[r])
                steps[r] = 0
            elif steps[r] > 1 and count[r] < limit:
                done = int(np.ceil((arrival[i] - start[r]) / length[r]))
                steps[r] = max(1, min(steps[r], done))
                due[r] = start[r] + length[r] * steps[r]
            i += 1
            continue
        now = due[r]
        if now == np.inf:
            break
        kept = 0
        for k in range(count[r]):
            j = running[r, k]
            if steps[r] > 0:
                if left[j] == 0:
                    produced[j] += steps[r]
                    last[j] = now
                else:
                    left[j] -= chunk[j]
                    chunk[j] = 0
                    if left[j] == 0:
                        produced[j] = 1
                        first[j] = last[j] = now
            if produced[j] >= output[j]:
                load[r] -= 1
            else:
                running[r, kept] = j
                kept += 1
        count[r] = kept
        decodes, tokens, horizon = 0, 0, np.int64(1) << 60
        for k in range(count[r]):
            j = running[r, k]
            if left[j] == 0:
                decodes += 1
                horizon = min(horizon, output[j] - produced[j])
        room = budget - decodes
        for k in range(count[r]):
            j = running[r, k]
            if left[j] > 0 and room > 0:
                chunk[j] = min(left[j], room)
                room -= chunk[j]
                tokens += chunk[j]
        while head[r] >= 0 and room > 0 and count[r] < limit:
            j = head[r]
            head[r] = after[j]
            running[r, count[r]] = j
            count[r] += 1
            scheduled[j] = now
            chunk[j] = min(left[j], room)
            room -= chunk[j]
            tokens += chunk[j]
        if decodes == 0 and tokens == 0:
            due[r] = np.inf
            steps[r] = 0
            continue
        time = decode_ns[min(decodes, len(decode_ns) - 1)] if decodes > 0 else 0.0
        if tokens > 0:
            time = max(time, _line(float(tokens + decodes), xs, ys))
            horizon = np.int64(1)
        start[r], length[r], steps[r] = now, max(1.0, time * speed[r]), horizon
        due[r] = now + length[r] * horizon
    return scheduled, first, last, replica

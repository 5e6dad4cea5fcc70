"""Why requests queue: a missing replica, full memory, one request that blocks, uneven load, or demand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.demand import Demand
from tailtrace.analytics.verdicts.device import Device, Finding
from tailtrace.analytics.verdicts.observed import Observed, Steps
from tailtrace.analytics.verdicts.verdict import UNKNOWN, Evidence

_RUSH = 0.25  # log of arrivals from which a new replica answers a rush and not a crash


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the time in which requests waited for a step: the share that waited for KV blocks, and how full they were."""

    waiting: float
    blocked: float
    usage: float
    preempted: float


def memory(steps: Steps) -> Memory:
    """What the steps say of the KV cache; NaN where they do not."""
    weight = steps.duration_ns * steps.weight
    waits = np.nan_to_num(steps.waiting) > 0
    blocked = waits & (np.nan_to_num(steps.waiting_capacity) > 0)
    total, held = float(weight.sum()), float(weight[waits].sum())
    return Memory(
        held / total if total else float("nan"),
        float(weight[blocked].sum()) / held if held else 0.0,
        float(np.average(steps.kv_usage[blocked], weights=weight[blocked]))
        if blocked.any() and np.isfinite(steps.kv_usage[blocked]).all()
        else float("nan"),
        float(np.nansum(steps.preempted)) if len(steps) else float("nan"),
    )


def missing_replica(before: Observed, during: Observed, load: Demand) -> Finding | None:
    """A start-up in the window, and what made it necessary."""
    if not during.startups:
        return None
    seconds = (
        sum(min(one.end_ns, during.until_ns) - max(one.start_ns, during.since_ns) for one in during.startups) / 1e9
    )
    proof = Evidence("seconds a replica was starting", seconds, 0.0, "start-up spans")
    errors = [v for gpus in _all_gpus(before, during) for v in during.counters.over("hw.errors", gpus, "xid")]
    if sum(errors) > limit.XID.value:
        return Finding(
            "gpu_fault", 0.95, (Evidence("XID errors a second", sum(errors), limit.XID.value, limit.XID.source), proof)
        )
    if load.logs["capacity"] > _RUSH and len(set(during.gpus)) >= len(set(before.gpus)):
        known = set(before.gpus.values())
        fresh = [replica for replica, uuids in during.gpus.items() if uuids not in known]
        if fresh or len(during.gpus) > len(before.gpus):
            return Finding("scale_up_late", 0.9, (*load.evidence("capacity"), proof))
    counted = any(during.counters.over("hw.gpu.utilization", gpus) for gpus in _all_gpus(before, during))
    # Without counters of the GPUs a fault that made the start necessary cannot be ruled out.
    return Finding("cold_start", 0.9 if counted else 0.7, (proof,))


def queue(before: Observed, during: Observed, load: Demand, slow: Device) -> list[tuple[Finding, float]]:
    """Findings with their shares, summing to 1, of the time that requests queued longer."""
    start = missing_replica(before, during, load)
    if start is not None:
        return [(start, 1.0)]
    skew = uneven(before, during)
    if skew is not None:
        return [(skew, 1.0)]
    drivers = demand_findings(load, slow)
    pressing = sum(weight for _, weight in drivers)
    blocked = blocked_by_memory(before, during, load)
    if blocked is not None:
        # What asks for more memory comes first; the rest is memory itself.
        demanded = min(0.8, pressing / (pressing + 0.5))
        if blocked.cause == "head_of_line" or pressing < 0.15:
            return [(blocked, 1.0)]
        return [*((finding, weight / pressing * demanded) for finding, weight in drivers), (blocked, 1.0 - demanded)]
    if not len(during.steps) and pressing < limit.CLEAR_DRIVER.value:
        return [
            (
                Finding(UNKNOWN, 0.0, reason="requests queue longer; without engine steps memory cannot be ruled out"),
                1.0,
            )
        ]
    if pressing > 0:
        return [(finding, weight / pressing) for finding, weight in drivers]
    return [
        (Finding(UNKNOWN, 0.0, reason="requests queue longer, and neither demand nor memory nor speed changed"), 1.0)
    ]


def blocked_by_memory(before: Observed, during: Observed, load: Demand) -> Finding | None:
    """KV blocks ran out, or the first in the queue needs more of them than are free."""
    now, usual = memory(during.steps), memory(before.steps)
    if not now.waiting > 0 or now.blocked < limit.KV_BLOCKED.value or not np.isfinite(now.usage):
        return None
    share = Evidence("waiting steps that wait for memory", now.blocked, limit.KV_BLOCKED.value, limit.KV_BLOCKED.source)
    full = Evidence("KV blocks used while requests wait", now.usage, limit.KV_FULL.value, limit.KV_FULL.source)
    if load.tail:
        return Finding("head_of_line", 0.9, (share, full, *load.evidence("head_of_line")))
    per_request = now.preempted / max(len(during.requests), 1)
    if per_request > max(0.02, 2 * usual.preempted / max(len(before.requests), 1)):
        return Finding(
            "preemption", 0.9, (Evidence("preemptions a request", per_request, 0.02, limit.KV_FULL.source), full)
        )
    # The next prompt needs many blocks at once, so a cache is full for it before its last block is taken.
    if now.usage < limit.KV_TIGHT.value:
        return None
    return Finding("kv_full", 0.92 if now.usage >= limit.KV_FULL.value else 0.85, (full, share))


def uneven(before: Observed, during: Observed) -> Finding | None:
    """One replica does far more than its share of the tokens, and did not before."""
    now, usual = _skew(during, during), _skew(before, before)
    known = _skew(during, before)
    now = max(now, known)
    if now < limit.UNEVEN.value or now < limit.WIDER.value * usual or usual <= 0:
        return None
    proof = Evidence("busiest replica's tokens / mean of replicas", now, limit.UNEVEN.value, limit.UNEVEN.source)
    return Finding("uneven_replicas", 0.92, (proof, Evidence("the same before", usual, None, "the reference")))


def _skew(seen: Observed, fleet: Observed) -> float:
    work: dict[tuple[str, ...], float] = {}
    tokens = np.nan_to_num(seen.requests.input_tokens) + 25 * np.nan_to_num(seen.requests.output_tokens)
    for index, replica in enumerate(seen.requests.replicas):
        key = seen.gpus.get(replica) or (replica,)
        if not seen.gpus.get(replica):
            continue
        work[key] = work.get(key, 0.0) + float(tokens[seen.requests.replica == index].sum())
    machines = {uuids for uuids in fleet.gpus.values() if uuids} | set(work)
    total = sum(work.values())
    return max(work.values()) * len(machines) / total if total and len(machines) > 1 else 0.0


def demand_findings(load: Demand, slow: Device) -> list[tuple[Finding, float]]:
    """What made the fleet busier, each with the log by which it did."""
    found = [
        (Finding(cause, 0.9 if log >= 2 * limit.DRIVER.value else 0.6, load.evidence(cause)), log)
        for cause, log in load.logs.items()
        if log >= limit.DRIVER.value
    ]
    for phase in ("decode", "prefill"):
        for finding, share in slow.shares.get(phase, []):
            ratio = slow.slower[phase]
            if np.isfinite(ratio) and ratio > limit.STEP_SLOWER.value:
                found.append((finding, float(np.log(ratio)) * share * (0.8 if phase == "decode" else 0.2)))
    return found


def _all_gpus(before: Observed, during: Observed) -> list[tuple[str, ...]]:
    return list({*before.gpus.values(), *during.gpus.values()})

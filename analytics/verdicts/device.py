"""Whether the GPUs did the same work more slowly, and what their counters say of the reason: rules 1, 2, 8 to 14."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.observed import Counters, Floats, Observed, Steps
from tailtrace.analytics.verdicts.shared_gpu import REASON, strangers
from tailtrace.analytics.verdicts.thresholds import Threshold
from tailtrace.analytics.verdicts.verdict import UNKNOWN, Evidence

Phase = Literal["prefill", "decode"]
NO_THROTTLING: Final = ("sw_power_cap", "sync_boost")
_LEAST: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """What slows a phase of a replica's GPUs."""

    cause: str
    strength: float
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """`slower`: step time / reference at the same batch, by phase, over all replicas (1 = as before, NaN = unknown).

    `shares`: of that slowness, each finding's share by phase; they sum to 1. `faults`: what counters alone show, for
    where steps do not say how much slower they were; shares sum to 1.
    """

    slower: dict[Phase, float]
    shares: dict[Phase, list[tuple[Finding, float]]]
    faults: list[tuple[Finding, float]]


def device(before: Observed, during: Observed) -> Device:
    """Replica by replica, weighted by the time each spent in the phase."""
    slower: dict[Phase, float] = {}
    shares: dict[Phase, list[tuple[Finding, float]]] = {}
    for phase in ("prefill", "decode"):
        found: list[tuple[Finding, float]] = []
        lost = spent = 0.0
        for index, replica in enumerate(during.steps.replicas):
            steps = during.steps.where(during.steps.replica == index)
            ratio, time = step_ratio(_same(before.steps, replica), steps, phase)
            spent += time
            if not np.isfinite(ratio):
                continue
            own = time * max(0.0, 1.0 - 1.0 / ratio)
            lost += own
            if ratio >= limit.STEP_SLOWER.value:
                found.append((why_slow(before, during, replica, phase), own))
        total = sum(weight for _, weight in found)
        slower[phase] = spent / (spent - lost) if spent > 0 and lost < spent else 1.0 if spent > 0 else float("nan")
        shares[phase] = [(finding, weight / total) for finding, weight in found] if total > 0 else []
    faults = [fault for gpus in during.gpus.values() if (fault := gpu_fault(before, during, gpus))]
    return Device(slower, shares, [(fault, 1.0 / len(faults)) for fault in faults])


def step_ratio(before: Steps, during: Steps, phase: Phase) -> tuple[float, float]:
    """(median step time / reference at the same batch, ns spent in such steps); NaN when nothing compares."""
    usual, now = _bins(before, phase), _bins(during, phase)
    ratios, weights = [], []
    for key, (times, weight) in now.items():
        if key in usual and len(usual[key][0]) >= _LEAST and len(times) >= _LEAST:
            ratios.append(float(np.median(times) / np.median(usual[key][0])))
            weights.append(weight)
    spent = sum(weight for _, weight in now.values())
    if not ratios:
        return float("nan"), spent
    return float(np.average(ratios, weights=weights)), spent


def _bins(steps: Steps, phase: Phase) -> dict[tuple[int, int], tuple[Floats, float]]:
    prefill, decode = np.nan_to_num(steps.prefill_tokens), np.nan_to_num(steps.decode_tokens)
    keep = (prefill >= 64) if phase == "prefill" else (prefill == 0) & (decode > 0)
    size = (
        np.round(3 * np.log2(prefill[keep] + 1)).astype(np.int64)
        if phase == "prefill"
        else np.zeros(keep.sum(), np.int64)
    )
    batch = (
        np.round(3 * np.log2(decode[keep] + 1)).astype(np.int64)
        if phase == "decode"
        else (decode[keep] > 0).astype(np.int64)
    )
    times, weight = steps.duration_ns[keep], (steps.duration_ns * steps.weight)[keep]
    out: dict[tuple[int, int], tuple[Floats, float]] = {}
    for key in set(zip(size.tolist(), batch.tolist(), strict=True)):
        mine = (size == key[0]) & (batch == key[1])
        out[key] = (times[mine], float(weight[mine].sum()))
    return out


def _same(steps: Steps, replica: str) -> Steps:
    """The replica's own steps, or everybody's where it had none."""
    if replica in steps.replicas:
        own = steps.where(steps.replica == steps.replicas.index(replica))
        if len(own) >= 20:
            return own
    return steps


def why_slow(before: Observed, during: Observed, replica: str, phase: Phase) -> Finding:
    """The first rule that holds for the GPUs of one replica. Of GPUs that others use too, only what the driver reports
    and what the engine's own steps show is taken: the other counters are of everybody together.
    """
    gpus = during.gpus.get(replica, ())
    now, usual = during.counters, before.counters
    launch = launch_bound(during.steps.where(during.steps.replica == during.steps.replicas.index(replica)))
    if not now.over("hw.gpu.utilization", gpus):
        if launch:
            return Finding("launch_bound", 0.7, launch)
        return Finding(UNKNOWN, 0.0, reason="steps are slower, and there are no counters of their GPUs")
    fault = gpu_fault(before, during, gpus)
    if fault is not None:
        return fault
    shared = strangers(before, during, gpus)
    if shared:
        return Finding("launch_bound", 0.9, launch) if launch else Finding(UNKNOWN, 0.0, shared, REASON)
    behind = rank_behind(now, gpus)
    if behind:
        return Finding("straggler_rank", 0.8, behind)
    if launch:
        return Finding("launch_bound", 0.9, launch)
    pcie = link_bound(usual, now, gpus, "pcie", limit.PCIE)
    if pcie:
        return Finding("pcie", 0.8, pcie)
    return bound_by(now, gpus, phase)


def gpu_fault(before: Observed, during: Observed, gpus: tuple[str, ...]) -> Finding | None:
    """What no load explains: an error the driver reported, clocks that were cut, links that are full or gone."""
    usual, now = before.counters, during.counters
    errors = now.over("hw.errors", gpus, "xid")
    if sum(errors) > limit.XID.value:
        return Finding("gpu_fault", 0.95, (_evidence("XID errors a second", sum(errors), limit.XID),))
    slow = clocks_cut(usual, now, gpus)
    if slow:
        # A group that works in step is as fast as its slowest member: one cut clock makes the others wait.
        cause = "straggler_rank" if len(slow) < len(gpus) else "throttled"
        return Finding(
            cause, 0.95, (slow[0], Evidence("ranks with cut clocks", len(slow), len(gpus), "ranks of the group"))
        )
    nvlink = link_bound(usual, now, gpus, "nvlink", limit.NVLINK)
    if nvlink and not strangers(before, during, gpus):
        return Finding("nvlink", 0.9, nvlink)
    return None


def bound_by(now: Counters, gpus: tuple[str, ...], phase: Phase) -> Finding:
    """Compute, memory or launches, from shares while busy; without GPM the bound stays unknown."""
    busy = _mean(now.over("hw.gpu.utilization", gpus))
    dram, tensor, sm = (_mean(now.over(f"tailtrace.gpu.{name}_active", gpus)) for name in ("dram", "tensor", "sm"))
    if not np.isfinite(dram) or not busy > 0:
        return Finding(UNKNOWN, 0.0, reason="GPUs are busy; without GPM counters what binds them is unknown")
    dram, tensor, sm = dram / busy, tensor / busy, sm / busy
    if sm < limit.SM_LOW.value:
        return Finding("launch_bound", 0.8, (_evidence("SM activity while busy", sm, limit.SM_LOW),))
    if phase == "decode" and dram >= limit.DRAM_HEAVY.value:
        return Finding("decode_memory", 0.85, (_evidence("memory bandwidth while busy", dram, limit.DRAM_HEAVY),))
    if phase == "prefill":
        strength = 0.85 if sm >= 0.6 else 0.6
        return Finding(
            "prefill_compute",
            strength,
            (
                _evidence("tensor activity while busy", tensor, limit.TENSOR_HEAVY),
                Evidence("SM activity while busy", sm, 0.6, "KempnerPulse"),
            ),
        )
    return Finding(
        UNKNOWN,
        0.0,
        (_evidence("memory bandwidth while busy", dram, limit.DRAM_HEAVY),),
        "steps are slower and no counter says why",
    )


def clocks_cut(usual: Counters, now: Counters, gpus: Sequence[str]) -> list[Evidence]:
    """One piece of evidence for each GPU whose clock was cut, the worst first."""
    found = []
    for gpu in gpus:
        cut = sum(
            v for reason, v in now.attributes("tailtrace.gpu.throttle", gpu).items() if reason not in NO_THROTTLING
        )
        clock, before = now.get("tailtrace.gpu.clock.sm", gpu), usual.get("tailtrace.gpu.clock.sm", gpu)
        if cut > limit.THROTTLED.value:
            found.append(_evidence("share of time with clocks cut", cut, limit.THROTTLED))
        elif clock and before and clock < limit.CLOCK.value * before:
            found.append(_evidence("SM clock / reference", clock / before, limit.CLOCK))
    return sorted(found, key=lambda one: -one.value)


def link_bound(
    usual: Counters, now: Counters, gpus: Sequence[str], link: str, threshold: Threshold
) -> tuple[Evidence, ...]:
    """Evidence that a link is full, or that some of its lanes are gone."""
    found = []
    share, direction = link_share(now, gpus, link)
    if share > threshold.value:
        found.append(_evidence(f"{link} {direction} bytes / limit", share, threshold))
    active, before = (
        _mean(now.over("tailtrace.link.active", tuple(gpus), link)),
        _mean(usual.over("tailtrace.link.active", tuple(gpus), link)),
    )
    if active < limit.NVLINK_ACTIVE.value * before:
        found.append(Evidence("links that are up", active, before, "the reference"))
    return tuple(found)


def link_share(now: Counters, gpus: Sequence[str], link: str) -> tuple[float, str]:
    """(fullest direction's bytes / limit of any GPU, that direction)."""
    best = (0.0, "")
    for gpu in gpus:
        top = now.get("tailtrace.link.limit", gpu, link)
        for direction in ("receive", "transmit"):
            moved = now.get("tailtrace.link.bandwidth", gpu, f"{link}.{direction}")
            if top and moved and moved / top > best[0]:
                best = (moved / top, direction)
    return best


def rank_behind(now: Counters, gpus: Sequence[str]) -> tuple[Evidence, ...]:
    """A rank whose SMs do far less than its peers' while they wait for it."""
    active = now.over("tailtrace.gpu.sm_active", tuple(gpus))
    if len(active) < 2 or max(active) <= 0 or min(active) / max(active) >= limit.RANK_SCORE.value:
        return ()
    return (_evidence("least SM activity of a rank / best of its peers", min(active) / max(active), limit.RANK_SCORE),)


def launch_bound(steps: Steps) -> tuple[Evidence, ...]:
    """Decode steps in which the GPU mostly waits for its kernels."""
    pure = (np.nan_to_num(steps.prefill_tokens) == 0) & (steps.decode_tokens > 0) & np.isfinite(steps.gpu_ns)
    if pure.sum() < _LEAST:
        return ()
    idle = float(1.0 - np.sum((steps.gpu_ns * steps.weight)[pure]) / np.sum((steps.duration_ns * steps.weight)[pure]))
    return (
        (_evidence("GPU idle within decode steps", idle, limit.GPU_IDLE_IN_STEP),)
        if idle > limit.GPU_IDLE_IN_STEP.value
        else ()
    )


def _evidence(metric: str, value: float, threshold: Threshold) -> Evidence:
    return Evidence(metric, float(value), threshold.value, threshold.source)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")

"""Every second of every GPU: busy, and bound by what, or idle, and waiting for what. Parts sum to the window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.observed import STAGE_INDEX, Floats, Ints, Requests, Startup, Steps
from tailtrace.analytics.verdicts.verdict import UNKNOWN

State = Literal["busy", "idle", "no_data"]

_AROUND: Final = 3  # gaps on either side

# What a request that is in a stage means for a GPU that does nothing meanwhile; the first of these that any request is
# in has the second. A request inside the engine explains more than one still on its way.
WAITS: Final[tuple[tuple[str, str], ...]] = (
    ("kv_transfer", "kv_handover"), ("kv_load", "pcie"), ("preempted", "preemption"), ("batch_wait", "batch_forming"),
    ("prefill", "launch_bound"), ("forward", "launch_bound"), ("decode", "launch_bound"), ("queue", "capacity"),
    ("grammar", "loop_cpu"), ("tokenize", "tokenizer_thread"), ("mm_encode", "loop_cpu"), ("engine_submit", "loop_cpu"),
    ("template", "loop_cpu"), ("parse", "loop_cpu"), ("dispatch", "upstream"), ("route", "upstream"),
    ("network", "upstream"), ("external", "external_dependency"), ("cache_lookup", "external_dependency"),
    ("guardrail", "upstream"), ("admission", "limiter"), ("rate_limit", "limiter"), ("auth", "auth_dependency"),
    ("net_in", "client_link"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """Readings of one GPU in order of time; each covers the time since the one before. NaN where it was not read."""

    unix_ns: Ints
    busy: Floats
    dram: Floats
    sm: Floats
    throttled: Floats


@dataclass(frozen=True, slots=True)
class Stretch:
    """One GPU in one state for one cause, [start, end)."""

    gpu: str
    state: State
    cause: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One GPU in one cell of a timeline: the state and cause of most of it, and the share of it that the GPU ran (None
    where that is unknown).
    """

    state: State
    cause: str
    busy: float | None


def cells(since_ns: int, until_ns: int, most: int = 7200) -> Ints:
    """Edges of equal cells over the window: a second each, or longer so that there are at most `most`."""
    count = max(1, min(most, (until_ns - since_ns) // 1_000_000_000))
    return np.asarray(since_ns + np.arange(count + 1) * (until_ns - since_ns) // count, np.int64)


def busy_shares(edges: Ints, series: GpuSeries | None, steps: Steps) -> Floats:
    """By cell, the share in which the GPU ran: its counter, else the engine's steps; NaN where neither says."""
    if series is not None and len(series.unix_ns):
        at = np.searchsorted(series.unix_ns, edges[1:], side="left")
        inside = at < len(series.unix_ns)
        shares = np.full(len(edges) - 1, np.nan)
        next_one = np.minimum(at, len(series.unix_ns) - 1)
        near = inside & (series.unix_ns[next_one] - edges[1:] <= _reach(series.unix_ns)[next_one])
        shares[near] = series.busy[next_one][near]
        return np.asarray(np.clip(shares, 0.0, 1.0), np.float64)
    if not len(steps):
        return np.full(len(edges) - 1, np.nan)
    # A kept step stands for those before it, back to the step kept before.
    end = steps.start_ns + steps.duration_ns.astype(np.int64)
    begin = end - (steps.duration_ns * steps.weight).astype(np.int64)
    return np.asarray(np.minimum(1.0, covered(edges, begin, end)), np.float64)


def _reach(unix_ns: Ints) -> Ints:
    """By reading, for how long before it it may speak: twice the usual gap around it, since a sampler may have read
    more rarely before, and a pause is no gap of its usual length.
    """
    gaps = np.diff(unix_ns)
    if not len(gaps):
        return np.full(len(unix_ns), 60_000_000_000, np.int64)
    around = np.lib.stride_tricks.sliding_window_view(np.pad(gaps, _AROUND, mode="edge"), 2 * _AROUND + 1)
    usual = 2 * np.median(around, axis=1).astype(np.int64)
    return np.concatenate([usual[:1], usual])


def covered(edges: Ints, begin: Ints, end: Ints) -> Floats:
    """By cell, the ns that intervals cover divided by the cell's length; overlapping ones add up."""

    def before(at: Ints) -> Floats:
        """Time of all intervals before each instant."""
        starts, ends = np.sort(begin), np.sort(end)
        total_start, total_end = np.concatenate([[0], np.cumsum(starts)]), np.concatenate([[0], np.cumsum(ends)])
        i, j = np.searchsorted(starts, at, side="right"), np.searchsorted(ends, at, side="right")
        return np.asarray((i * at - total_start[i]) - (j * at - total_end[j]), np.float64)

    base = int(edges[0])
    begin, end = begin - base, np.maximum(end, begin) - base
    sums = before(edges - base)
    return np.asarray(np.diff(sums) / np.maximum(np.diff(edges), 1), np.float64)


def waiting_causes(edges: Ints, requests: Requests, startups: Sequence[Startup]) -> NDArray[np.object_]:
    """By cell, what a GPU that is idle then waits for. Requests are laid out stage after stage in the usual order."""
    causes = np.full(len(edges) - 1, "no_work", dtype=object)
    ends = np.cumsum(np.nan_to_num(requests.whole), axis=1)
    for stage, cause in reversed(WAITS):
        index = STAGE_INDEX[stage]
        lengths = np.nan_to_num(requests.whole[:, index])
        some = lengths > 0
        if not some.any():
            continue
        end = requests.start_ns[some] + ends[some, index].astype(np.int64)
        causes[covered(edges, end - lengths[some].astype(np.int64), end) > 0.02] = cause
    for one in startups:
        causes[(edges[1:] > one.start_ns) & (edges[:-1] < one.end_ns)] = "cold_start"
    return causes


def bound_causes(edges: Ints, series: GpuSeries | None, steps: Steps, slow: bool) -> NDArray[np.object_]:
    """By cell, what binds a GPU that is busy then."""
    out = np.full(len(edges) - 1, UNKNOWN, dtype=object)
    prompts = np.zeros(len(edges) - 1, np.bool_)
    if len(steps):
        with_prompt = np.nan_to_num(steps.prefill_tokens) > 0
        chosen = steps.where(with_prompt)
        prompts = covered(edges, chosen.start_ns, chosen.start_ns + chosen.duration_ns.astype(np.int64)) > 0.5
    if series is None or not len(series.unix_ns):
        return out
    at = np.minimum(np.searchsorted(series.unix_ns, edges[1:], side="left"), len(series.unix_ns) - 1)
    busy = np.maximum(series.busy[at], limit.IDLE.value)
    dram, sm = series.dram[at] / busy, series.sm[at] / busy
    known = np.isfinite(dram)
    out[known & (dram >= limit.DRAM_HEAVY.value)] = "decode_memory"
    out[known & ((dram < limit.DRAM_HEAVY.value) | prompts) & (sm >= 0.5)] = "prefill_compute"
    out[known & (sm < limit.SM_LOW.value)] = "launch_bound"
    out[series.throttled[at] > limit.THROTTLED.value] = "straggler_rank" if slow else "throttled"
    return out


def attribute(
    edges: Ints,
    busy: Mapping[str, Floats],
    bound: Mapping[str, NDArray[np.object_]],
    waits: Mapping[str, NDArray[np.object_]],
) -> tuple[dict[tuple[str, str, str], int], list[Stretch]]:
    """({(gpu, state, cause): ns}, stretches). The ns of a GPU sum to the window exactly; a stretch is the state that
    has most of its cells.
    """  # fmt: skip
    totals: dict[tuple[str, str, str], int] = defaultdict(int)
    stretches: list[Stretch] = []
    lengths = np.diff(edges)
    for gpu, shares in busy.items():
        known = np.isfinite(shares)
        ran = np.where(known, np.round(np.nan_to_num(shares) * lengths), 0).astype(np.int64)
        states = np.where(~known, "no_data", np.where(shares >= 0.5, "busy", "idle"))
        causes = np.where(states == "busy", bound[gpu], np.where(states == "idle", waits[gpu], UNKNOWN))
        for k in range(len(lengths)):
            if not known[k]:
                totals[gpu, "no_data", UNKNOWN] += int(lengths[k])
                continue
            totals[gpu, "busy", str(bound[gpu][k])] += int(ran[k])
            totals[gpu, "idle", str(waits[gpu][k])] += int(lengths[k] - ran[k])
        cut = np.flatnonzero((states[1:] != states[:-1]) | (causes[1:] != causes[:-1])) + 1
        for a, b in zip([0, *cut.tolist()], [*cut.tolist(), len(lengths)], strict=True):
            stretches.append(Stretch(gpu, str(states[a]), str(causes[a]), int(edges[a]), int(edges[b])))  # type: ignore[arg-type]
    return {key: ns for key, ns in totals.items() if ns > 0}, stretches


def timeline(
    edges: Ints, busy: Floats, bound: NDArray[np.object_], waits: NDArray[np.object_], most: int
) -> list[Cell]:
    """One GPU's cells put together into at most `most` equal ones, for an eye."""
    count = len(edges) - 1
    lengths = np.diff(edges).astype(np.float64)
    group = np.arange(count) * min(most, count) // count
    known = np.isfinite(busy)
    ran = np.where(known, np.nan_to_num(busy), 0.0) * lengths
    rest = np.where(known, lengths - ran, 0.0)
    out = []
    for k in range(min(most, count)):
        mine = group == k
        seen = float(lengths[mine & known].sum())
        weights: dict[tuple[State, str], float] = defaultdict(float)
        for at in np.flatnonzero(mine):
            if known[at]:
                weights["busy", str(bound[at])] += float(ran[at])
                weights["idle", str(waits[at])] += float(rest[at])
            else:
                weights["no_data", UNKNOWN] += float(lengths[at])
        by_state = {state: sum(ns for (name, _), ns in weights.items() if name == state) for state, _ in weights}
        state = max(by_state, key=lambda name: by_state[name])
        cause = max((key for key in weights if key[0] == state), key=lambda key: weights[key])[1]
        out.append(Cell(state, cause, float(ran[mine].sum()) / seen if seen else None))
    return out

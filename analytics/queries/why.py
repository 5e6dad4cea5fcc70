"""Why a service is slow: the order of diagnosis, each step ruled in or out with its evidence, and one verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from tailtrace.analytics.queries.clues import Clues, clues
from tailtrace.analytics.queries.goals import Goal, GoalFigure, figures, gpu_seconds, guessed, tokens_per_second
from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.demand import tokens
from tailtrace.analytics.verdicts.excess import Excess
from tailtrace.analytics.verdicts.judge import Judgement, judge_window
from tailtrace.analytics.verdicts.observed import STAGE_INDEX, Floats, Observed
from tailtrace.analytics.verdicts.read import observe
from tailtrace.analytics.verdicts.verdict import Evidence, Part, Verdict
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

StepState = Literal["in", "out", "no_data"]
REFERENCE: Final = 3  # a reference is at most this many times as long as the window
LEAST_REFERENCE_NS: Final = 3_600_000_000_000

# (step, its stages, its causes, what it needs to be ruled out)
ORDER: Final[tuple[tuple[str, frozenset[str], frozenset[str], str], ...]] = (
    ("queue before the engine",
     frozenset({"net_in", "auth", "rate_limit", "admission", "guardrail", "cache_lookup", "route", "dispatch",
                "external", "network"}),
     frozenset({"upstream", "auth_dependency", "limiter", "external_dependency"}), ""),
    ("queue in the engine",
     frozenset({"queue", "batch_wait", "preempted"}),
     frozenset({"capacity", "kv_full", "preemption", "batch_forming", "head_of_line", "uneven_replicas",
                "scale_up_late"}), ""),
    ("CPU: tokenizing, preprocessing, scheduling, threads",
     frozenset({"parse", "template", "tokenize", "mm_encode", "engine_submit", "grammar", "engine_return", "detokenize",
                "postprocess"}),
     frozenset({"loop_blocked", "loop_cpu", "cpu_starved", "cpu_quota", "gil", "tokenizer_thread", "launch_bound"}),
     "host counters"),
    ("model: compute, memory, clocks",
     frozenset({"prefill", "forward", "decode"}),
     frozenset({"prefill_compute", "decode_memory", "prefill_interference", "throttled", "straggler_rank"}),
     "GPU counters"),
    ("links: PCIe, NVLink, KV hand-over, the client's line",
     frozenset({"kv_load", "kv_transfer", "stream_out"}),
     frozenset({"pcie", "nvlink", "kv_handover", "client_link", "slow_reader", "retransmits"}), "GPU counters"),
    ("traffic", frozenset(),
     frozenset({"longer_output", "longer_input", "cache_miss", "traffic_changed", "capacity"}), ""),
    ("faults and starts: errors, XID, start-ups",
     frozenset({"engine_init"}), frozenset({"gpu_fault", "cold_start", "scale_up_late"}), ""),
)  # fmt: skip
LAST_STEP: Final = "logs and engine metrics"  # carries clues, and no time: what a log line cost is in the steps above


@dataclass(frozen=True, slots=True)
class CauseShare:
    """A cause's part of the excess, with what bears it."""

    cause: str
    stages: list[str]
    ns: int
    share: float
    evidence: list[Evidence]
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the diagnosis. `before_ns` and `during_ns`: mean ns a request in its stages, before and now.
    `evidence` is what rules in a step that holds no time of its own.
    """

    step: str
    state: StepState
    share: float
    causes: list[CauseShare]
    before_ns: int
    during_ns: int
    note: str
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Side:
    """Figures of one window; means are of requests that ended well."""

    since_unix_ns: str
    until_unix_ns: str
    requests: int
    errors: int
    per_second: float
    mean_ns: int | None
    ttft_mean_ns: int | None
    input_tokens: float | None
    output_tokens: float | None
    output_tokens_per_second: float | None
    gpu_seconds_per_token: float | None


@dataclass(frozen=True, slots=True)
class Why:
    """`state`: slower, as_before, or too_few. `slow_part`: first_token, tokens, both, or empty. `excess_ns` is a mean a
    request, of the view (`whole` or `first` token) that the verdict is about; `causes` sum to it, and so do the steps.
    `figures` are those that the goal is about; `goal_guessed` where nobody set one. `clues`: log lines and engine
    metrics of the window, None where they were not asked for.
    """

    service: str
    goal: Goal
    goal_guessed: bool
    state: str
    view: str
    slow_part: str
    excess_ns: int
    relative: float
    verdict: Verdict | None
    causes: list[CauseShare]
    steps: list[Step]
    before: Side
    during: Side
    missing: list[str] = field(default_factory=list)
    figures: list[GoalFigure] = field(default_factory=list)
    clues: Clues | None = None


def why(
    store: Store,
    service: str,
    since_ns: int,
    until_ns: int,
    *,
    reference_ns: int | None = None,
    goal: Goal | None = None,
) -> Why:
    """The window against the time before it (`reference_ns` long; three times the window, at least an hour), or after
    it where nothing is before. Raises Rejected for an empty window.
    """
    if until_ns <= since_ns:
        raise Rejected("the window is empty: since must be before until")
    length = reference_ns or max(REFERENCE * (until_ns - since_ns), LEAST_REFERENCE_NS)
    during = observe(store, service, since_ns, until_ns)
    before = observed_part(observe(store, service, since_ns - length, since_ns))
    if len(before.requests) < limit.FEW_REQUESTS.value:
        after = observed_part(observe(store, service, until_ns, until_ns + length))
        before = after if len(after.requests) >= limit.FEW_REQUESTS.value else before
    found = diagnosis(service, before, during, judge_window(before, during), goal)
    told = clues(store, service, (before.since_ns, before.until_ns), (since_ns, until_ns))
    return replace(found, clues=told, steps=[*found.steps, last_step(told)])


def last_step(told: Clues) -> Step:
    """What logs and the engines' own metrics add: ruled in by what grew beyond its threshold."""
    state: StepState = "in" if told.findings else "out" if told.seen else "no_data"
    lines = f"{told.errors} errors, {told.warnings} warnings" if told.seen else "no logs and no engine metrics"
    return Step(LAST_STEP, state, 0.0, [], 0, 0, lines, list(told.findings))


def observed_part(seen: Observed) -> Observed:
    """The reference cut to where its data begins, so that rates are not diluted by time before the first request."""
    if not len(seen.requests):
        return seen
    first = int(seen.requests.start_ns.min())
    return Observed(
        max(seen.since_ns, first),
        seen.until_ns,
        seen.requests,
        seen.steps,
        seen.counters,
        seen.startups,
        seen.gpus,
        seen.hosts,
    )


def diagnosis(service: str, before: Observed, during: Observed, found: Judgement, goal: Goal | None = None) -> Why:
    """A judgement in the order in which an engineer would look."""
    chosen = found.whole if found.view == "whole" else found.first
    total = sum(part.ns for part in found.parts)
    causes = _causes(found.parts, total)
    state = "slower" if found.verdict else "too_few" if found.whole is None and found.first is None else "as_before"
    chosen_goal = goal or guessed(during.requests)
    return Why(
        service=service,
        goal=chosen_goal,
        goal_guessed=goal is None,
        state=state,
        view=found.view,
        slow_part=_slow_part(found),
        excess_ns=round(total),
        relative=total / chosen.before if chosen is not None and chosen.before > 0 else 0.0,
        verdict=found.verdict,
        causes=causes,
        steps=_steps(found, total),
        before=_side(before),
        during=_side(during),
        missing=list(found.missing),
        figures=figures(chosen_goal, before, during),
    )


def _slow_part(found: Judgement) -> str:
    first = found.first is not None and found.first.slower
    later = (
        found.whole is not None
        and found.whole.slower
        and found.whole.total > 2 * (found.first.total if found.first is not None else 0.0)
    )
    return "both" if first and later else "first_token" if first else "tokens" if later else ""


def _causes(parts: Sequence[Part], total: float) -> list[CauseShare]:
    by_cause: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_cause[part.cause].append(part)
    out = []
    for cause, own in by_cause.items():
        ns = sum(part.ns for part in own)
        proof = {one.metric: one for part in own for one in part.evidence}
        stages = list(dict.fromkeys(part.stage for part in sorted(own, key=lambda part: -part.ns)))
        out.append(
            CauseShare(cause, stages, round(ns), ns / total if total else 0.0, list(proof.values()), own[0].reason)
        )
    return sorted(out, key=lambda one: -one.ns)


def _steps(found: Judgement, total: float) -> list[Step]:
    """Each part belongs to the first step that names its cause, else its stage: shares sum to 1."""
    taken: dict[str, list[Part]] = defaultdict(list)
    for part in found.parts:
        named = [step for step, _, causes, _ in ORDER if part.cause in causes]
        staged = [step for step, stages, _, _ in ORDER if part.stage in stages]
        taken[(named or staged or [ORDER[2][0]])[0]].append(part)
    chosen = found.whole if found.view == "whole" else found.first
    out = []
    for step, stages, _, needs in ORDER:
        ns = sum(part.ns for part in taken[step])
        share = ns / total if total else 0.0
        before, during = (_spent(chosen, stages, side) for side in ("before", "during")) if chosen else (0, 0)
        lacking = needs in found.missing if needs else False
        state: StepState = "in" if share >= 0.05 else "no_data" if lacking or chosen is None else "out"
        note = f"no {needs}" if lacking else "" if chosen is not None else "too few requests to compare"
        out.append(Step(step, state, share, _causes(taken[step], total), before, during, note))
    return out


def _spent(found: Excess, stages: frozenset[str], side: str) -> int:
    values = getattr(found, f"stage_{side}")
    return round(sum(float(values[STAGE_INDEX[stage]]) for stage in stages if stage in STAGE_INDEX))


def _side(seen: Observed) -> Side:
    rows, said = seen.requests, tokens(seen.requests)
    return Side(
        str(seen.since_ns),
        str(seen.until_ns),
        len(rows),
        int((~rows.ok).sum()),
        len(rows) / seen.seconds if seen.seconds > 0 else 0.0,
        _mean(rows.duration_ns[rows.ok]),
        _mean(rows.ttft_ns[rows.ok]),
        _number(said.input),
        _number(said.output),
        tokens_per_second(seen),
        gpu_seconds(seen),
    )


def _mean(values: Floats) -> int | None:
    known = values[np.isfinite(values)]
    return round(float(known.mean())) if len(known) else None


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None

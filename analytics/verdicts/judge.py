"""From parts to a verdict: the cause of most of the excess, how sure that is, what else there was, what was missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.excess import Excess, excess, single_excess
from tailtrace.analytics.verdicts.observed import STAGE_INDEX, Observed, Requests
from tailtrace.analytics.verdicts.rules import Rules
from tailtrace.analytics.verdicts.shared_gpu import strangers
from tailtrace.analytics.verdicts.verdict import UNKNOWN, Alternative, Confidence, Part, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """`verdict` is None where nothing is slower than its reference. `whole` and `first` are None where requests were
    too few; `parts` are those of the view that the verdict is about.
    """

    verdict: Verdict | None
    view: str
    whole: Excess | None
    first: Excess | None
    parts: Sequence[Part]
    missing: Sequence[str]
    rules: Rules


def judge_window(before: Observed, during: Observed) -> Judgement:
    """What most of the window's excess over its reference waited for."""
    rules = Rules(before, during)
    whole = excess(before.requests, during.requests, "whole")
    first = excess(before.requests, during.requests, "first")
    return _judgement(rules, whole, first, rules.startup_parts())


def judge_request(before: Observed, during: Observed, around: Observed) -> Judgement:
    """The same for one request (the only one of `during`), `around` being all that ran while it did. It is compared
    with requests that went through the same engine stages, and explained by the steps of its own replica.
    """
    one = during.requests
    if len(one) == 1:
        before = replace(before, requests=before.requests.where(_alike(before.requests, one)))
        around = replace(around, steps=around.steps.where(around.steps.replica == one.replica[0]))
    rules = Rules(before, around, one)
    whole = single_excess(before.requests, one, "whole")
    first = single_excess(before.requests, one, "first")
    return _judgement(rules, whole, first, [])


def _alike(usual: Requests, one: Requests) -> NDArray[np.bool_]:
    """Which requests were generated, or computed at once, like this one; all, where that leaves too few."""
    stages = [STAGE_INDEX["decode"], STAGE_INDEX["forward"]]
    same = ((usual.whole[:, stages] > 0) == (one.whole[0, stages] > 0)).all(axis=1)
    return same if same.sum() >= limit.FEW_REQUESTS.value else np.ones(len(usual), np.bool_)


def _judgement(rules: Rules, whole: Excess | None, first: Excess | None, startup: list[Part]) -> Judgement:
    missing = lacking(rules.before, rules.during)
    chosen = whole if whole is not None and whole.slower else first if first is not None and first.slower else None
    parts = (rules.parts(chosen) if chosen is not None else []) + startup
    view = chosen.view if chosen is not None else "whole"
    if not parts:
        return Judgement(None, view, whole, first, [], missing, rules)
    return Judgement(verdict_of(parts, rules.during, missing), view, whole, first, parts, missing, rules)


def verdict_of(parts: Sequence[Part], during: Observed, missing: Sequence[str]) -> Verdict:
    """The cause with the largest part; others follow by size."""
    total = sum(part.ns for part in parts)
    by_cause: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_cause[part.cause].append(part)
    order = sorted(by_cause, key=lambda cause: -sum(part.ns for part in by_cause[cause]))
    own = sorted(by_cause[order[0]], key=lambda part: -part.ns)
    ns = sum(part.ns for part in own)
    strength = sum(part.ns * part.strength for part in own) / ns
    share = ns / total
    seen = {}
    for part in own:
        seen.update({one.metric: one for one in part.evidence})
    return Verdict(
        cause=order[0],
        share=share,
        confidence=confidence(order[0], strength, share),
        window=(str(during.since_ns), str(during.until_ns)),
        evidence=list(seen.values()),
        missing=list(missing),
        alternatives=[
            Alternative(cause, sum(part.ns for part in by_cause[cause]) / total)
            for cause in order[1:4]
            if sum(part.ns for part in by_cause[cause]) >= 0.03 * total
        ],
        reason=own[0].reason if order[0] == UNKNOWN else "",
    )


def confidence(cause: str, strength: float, share: float) -> Confidence:
    """`high` is calibrated to be right at least nine times in ten (docs/verdicts.md)."""
    if cause == UNKNOWN:
        return "low"
    if strength >= limit.HIGH_STRENGTH.value and share >= limit.HIGH_SHARE.value:
        return "high"
    return "medium" if strength >= limit.MEDIUM_STRENGTH.value else "low"


def lacking(before: Observed, seen: Observed) -> list[str]:
    """Evidence that is not there, in words."""
    gpus = tuple(gpu for group in seen.gpus.values() for gpu in group)
    out = []
    if not len(seen.steps):
        out.append("engine steps")
    if not seen.counters.over("hw.gpu.utilization", gpus):
        out.append("GPU counters")
    elif not seen.counters.over("tailtrace.gpu.sm_active", gpus):
        out.append("GPM counters (SM, tensor, memory activity)")
    if strangers(before, seen, gpus):
        out.append("counters of this service alone: its GPU is shared with another process")
    if not any(seen.counters.get("tailtrace.host.tcp.segments", one) for one in seen.hosts):
        out.append("host counters")
    return out

"""What a rule watches of a service: the figures that it names, else those that suit what the service is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailtrace.analytics.queries.goals import Goal

# Nobody waits for the first token of a batch, and work done a second says nothing of waiting.
UNFIT: Final[Mapping[Goal, frozenset[str]]] = {
    "online": frozenset({"per_token", "tokens_per_s"}),
    "offline": frozenset({"ttft", "tpot", "goodput"}),
}


def watches(rule: Any, metric: str, service: str, goals: Mapping[str, Goal]) -> bool:
    """Whether a rule means this figure of this service. A regression rule that names its metrics, and any other rule
    that names its service, means just that, whatever the service is for. Services without a goal count as online.
    """
    if rule.service not in ("", service):
        return False
    if rule.kind == "silence":
        return True
    if rule.kind == "regression" and rule.metrics:
        return metric in rule.metrics
    named = rule.kind != "regression" and bool(rule.service)
    return named or metric not in UNFIT[goals.get(service, "online")]


def metric_of(rule: Any) -> str:
    """What a threshold or an objective is about."""
    return str(rule.metric if rule.kind == "threshold" else rule.sli)

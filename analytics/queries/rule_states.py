"""How each rule stands on each service it watches: firing, clear, in between, learning, or too few requests to tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.analytics.alerting.rules import span_ns
from tailtrace.analytics.alerting.watching import metric_of, watches
from tailtrace.analytics.freshness import watermark_ns
from tailtrace.analytics.jobs import episode_rows, series, signals
from tailtrace.analytics.queries.changes import list_changes
from tailtrace.analytics.queries.goals import NONE_SET, Goal, service_goals
from tailtrace.analytics.queries.telemetry import telemetry
from tailtrace.ingest.store import Store

_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RuleState:
    """A rule on one service (for regressions: and model, and metric).

    `state`: firing, clear, between (above `clear`, not above the limit for as long as `hold`), not_enough (`n` of
    `needed` requests), learning (`n` of `needed` reference requests). `telemetry`: ok, no_traffic, no_telemetry or
    incomplete. `value` and `limit`: ns of a threshold, burn rates of an objective, null otherwise.
    """

    service: str
    model: str
    metric: str
    state: str
    telemetry: str
    value: float | None
    limit: float | None
    n: int
    needed: int


def rule_states(store: Store, rule: Any, now_ms: int, told: Mapping[str, Goal] = NONE_SET) -> list[RuleState]:
    """The states of one rule as of where the data are complete, on the services whose goal it fits (`told`: the goals
    that were set).
    """
    goals = service_goals(store, told)
    lost, after = (rule.lost, span_ns(rule.after) // 10**6) if rule.kind == "silence" else (0.05, 900_000)
    seen = telemetry(store, now_ms, after_ms=after, lost=lost)
    states = {each.service: each.state for each in seen.telemetry}
    if rule.kind == "silence":
        return [
            RuleState(each.service, "", "", "clear" if each.state == "ok" else "firing", each.state, None, None, 0, 0)
            for each in seen.telemetry
            if rule.service in ("", each.service)
        ]
    if rule.kind == "regression":
        return _regressions(store, rule, states, goals)
    watermark = watermark_ns(store)
    if watermark is None:
        return []
    until_s = min(now_ms // 1000, watermark // _S - 5) // 60 * 60
    services = [rule.service] if rule.service else series.services(store, until_s - 86_400, until_s)
    now = signals.threshold_now if rule.kind == "threshold" else signals.slo_now
    limit = float(span_ns(rule.above)) if rule.kind == "threshold" else None
    metric = metric_of(rule)
    found = []
    for service in services:
        if not watches(rule, metric, service, goals):
            continue
        one = now(store, rule, service, until_s)
        value = one.value if one.n else None
        state = states.get(service, "no_telemetry")
        found.append(RuleState(service, rule.model, metric, one.state, state, value, limit, one.n, one.needed))
    return found


def _regressions(store: Store, rule: Any, states: Mapping[str, str], goals: Mapping[str, Goal]) -> list[RuleState]:
    firing = {
        (each["service"], each["model"], each["metric"])
        for episode in episode_rows.load(store, 0)
        if episode.rule == rule.name and episode.state != "resolved"
        for each in episode.body.get("affected", ())
        if each["state"] == "confirmed"
    }
    found = []
    for one in list_changes(store, service=rule.service, limit=1).series:
        if not watches(rule, one.metric, one.service, goals) or rule.model not in ("", one.model):
            continue
        on = (one.service, one.model, one.metric) in firing
        state = "firing" if on else "learning" if one.learning_of else "clear"
        telemetry_state = states.get(one.service, "no_telemetry")
        found.append(
            RuleState(
                one.service, one.model, one.metric, state, telemetry_state, None, None, one.learning, one.learning_of
            )
        )
    return found

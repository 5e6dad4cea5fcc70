"""Objectives as they stand: how many requests were good, what is left of the error budget, how fast it burns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tailtrace.analytics.alerting import limits
from tailtrace.analytics.alerting.rules import SloRule, span_ns
from tailtrace.analytics.alerting.watching import watches
from tailtrace.analytics.jobs import series, signals
from tailtrace.analytics.queries.goals import NONE_SET, Goal, service_goals
from tailtrace.analytics.queries.telemetry import telemetry
from tailtrace.analytics.queries.window import newest_ns
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store

BUDGET_DAYS: Final = 30
_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Burn:
    """Burn rates of a long and a short window; it tells when both are above `limit`. 1 = the budget lasts 30 days."""

    limit: float
    long_minutes: int
    short_minutes: int
    long: float | None
    short: float | None
    n: int
    firing: bool


@dataclass(frozen=True, slots=True)
class Hour:
    start_unix_ns: str
    n: int
    bad: int


@dataclass(frozen=True, slots=True)
class Objective:
    """One SLO rule on one service as of its newest data. `good`: share of the `n` requests of 30 days; `budget_left`:
    share of their error budget that is not used, below 0 when overspent. `limits_ns`: what is fast enough, by metric;
    `tokens_per_s`: the least of them, in an objective on them.
    `hours`: of 30 days, in the answer about one objective only.
    """

    rule: str
    service: str
    model: str
    sli: str
    objective: float
    limits_ns: dict[str, int]
    tokens_per_s: float | None
    as_of_unix_ns: str
    state: str
    telemetry: str
    good: float | None
    n: int
    budget_left: float | None
    burns: list[Burn]
    hours: list[Hour] | None = None


def objectives(
    store: Store, rules: Sequence[SloRule], now_ms: int, told: Mapping[str, Goal] = NONE_SET
) -> list[Objective]:
    """Every rule on every service that it watches and that had requests in the day before the newest data. A rule that
    names no service watches those whose goal it fits (`told`: the goals that were set).
    """
    newest = newest_ns(store)
    if newest is None or not rules:
        return []
    until_s = newest // _S // 60 * 60 + 60
    seen = series.services(store, until_s - 86_400, until_s)
    states, goals = _states(store, now_ms), service_goals(store, told)
    return [
        _objective(store, rule, service, until_s, states)
        for rule in rules
        for service in ([rule.service] if rule.service else seen)
        if watches(rule, rule.sli, service, goals)
    ]


def objective(store: Store, rule: SloRule, service: str, now_ms: int) -> Objective:
    """One of them with its hours. Raises NotFound for a service that the rule does not watch."""
    wanted = service or rule.service
    if not wanted or rule.service not in ("", wanted):
        raise NotFound(f"objective {rule.name!r} does not watch service {service[:100]!r}")
    newest = newest_ns(store)
    until_s = (now_ms // 1000 if newest is None else newest // _S) // 60 * 60 + 60
    found = _objective(store, rule, wanted, until_s, _states(store, now_ms))
    hours = signals.slo_hours(store, rule, wanted, until_s, BUDGET_DAYS)
    return replace(found, hours=[Hour(str(start * _S), total, bad) for start, total, bad in hours])


def _objective(store: Store, rule: SloRule, service: str, until_s: int, states: dict[str, str]) -> Objective:
    bad, total = signals.slo_minutes(store, rule, service, until_s, limits.BURNS[-1][1])
    state, _ = limits.burning(bad, total, rule.objective, rule.min_n)
    hours = signals.slo_hours(store, rule, service, until_s, BUDGET_DAYS)
    n, failed = sum(each[1] for each in hours), sum(each[2] for each in hours)
    budget = 1 - rule.objective
    burns = []
    for limit, long, short in limits.BURNS:
        counts = [(float(total[-window:].sum()), float(bad[-window:].sum())) for window in (long, short)]
        rates = [wrong / of / budget if of else None for of, wrong in counts]
        firing = counts[0][0] >= rule.min_n and all(rate is not None and rate > limit for rate in rates)
        burns.append(Burn(limit, long, short, rates[0], rates[1], int(counts[0][0]), firing))
    given = {"within": rule.within, "ttft": rule.ttft_within, "tpot": rule.tpot_within}
    return Objective(
        rule.name, service, rule.model, rule.sli, rule.objective,
        {(rule.sli if name == "within" else name): span_ns(text) for name, text in given.items() if text},
        rule.tokens_per_s if rule.sli == "tokens_per_s" else None,
        str(until_s * _S), state, states.get(service, "no_telemetry"), 1 - failed / n if n else None, n,
        1 - failed / n / budget if n else None, burns,
    )  # fmt: skip


def _states(store: Store, now_ms: int) -> dict[str, str]:
    return {each.service: each.state for each in telemetry(store, now_ms).telemetry}

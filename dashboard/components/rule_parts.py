"""The parts of a rule's page that ask the store about its past: how it stands, when it would have told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from dash import html

from tailtrace.analytics.alerting import book
from tailtrace.analytics.jobs.alerts import where_of
from tailtrace.analytics.queries.alerts import replay
from tailtrace.analytics.queries.goals import Goal, goals_of
from tailtrace.analytics.queries.rule_states import RuleState, rule_states
from tailtrace.analytics.queries.window import newest_ns
from tailtrace.dashboard.components.page import table, tag
from tailtrace.dashboard.format import DASH, count, duration, moment
from tailtrace.dashboard.text import Text
from tailtrace.errors import NotFound
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_DAY_NS: Final = 86_400_000_000_000
_S: Final = 1_000_000_000
STATES: Final = {"firing": "bad", "clear": "good", "between": "warn"}


def rule_parts(settings: ServerSettings) -> dict[str, Callable[[Store, Text, dict[str, str]], Any]]:
    """By name; they need to know where the rules file is, and what services are for."""
    told = goals_of(settings.goals)

    def named(store: Store, name: str) -> Any:
        rule = book.load(store, settings.alerts_file).rules.get(name)
        if rule is None:
            raise NotFound(f"there is no rule {name[:100]!r}")
        return rule

    def states(store: Store, text: Text, spec: dict[str, str]) -> Any:
        return _states(store, text, named(store, spec["rule"]), told)

    def past(store: Store, text: Text, spec: dict[str, str]) -> Any:
        rule, newest = named(store, spec["rule"]), newest_ns(store)
        if newest is None:
            return html.P(text("rules.no_states"), className="tt-muted")
        fired = replay(store, rule, (newest - _DAY_NS) // _S, newest // _S + 1, where_of(settings), told)
        if not fired:
            return html.P(text("rules.replay.none"), className="tt-muted")
        heads = [(text("regressions.since"), ""), (text("regressions.until"), ""), (text("rules.summary"), "")]
        return table(
            heads, [[moment(one.since_unix_ns), moment(one.until_unix_ns), text.said(one.summary)] for one in fired]
        )

    return {"rule_states": states, "rule_replay": past}


def _states(store: Store, text: Text, rule: Any, told: Mapping[str, Goal]) -> Any:
    """How a rule stands on each service it watches."""
    found = rule_states(store, rule, time.time_ns() // 1_000_000, told)
    if not found:
        return html.P(text("rules.no_states"), className="tt-muted")
    number = "is-number"
    heads = [(text("column.service"), ""), (text("column.model"), ""), (text("gpus.quantity"), ""),
             (text("regressions.state"), ""), (text("rules.value"), number), (text("rules.limit"), number),
             (text("rules.requests"), number), (text("rules.telemetry"), "")]  # fmt: skip
    return table(heads, [_state(text, rule, one) for one in found])


def _state(text: Text, rule: Any, one: RuleState) -> list[Any]:
    def shown(value: float | None) -> str:
        return DASH if value is None else duration(value) if rule.kind == "threshold" else f"{value:.2f}"

    needed = f"{count(one.n)} / {count(one.needed)}" if one.needed else count(one.n)
    return [
        one.service or text("service.unnamed"), one.model, text.or_else(f"chart.{one.metric}", one.metric),
        tag(text.or_else(f"rule.state.{one.state}", one.state), STATES.get(one.state, "")), shown(one.value),
        shown(one.limit), needed, text.or_else(f"telemetry.{one.telemetry}", one.telemetry),
    ]  # fmt: skip

"""Alerts with their messages, and a rule held against stored history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.analytics.alerting.episodes import Episode, Signal
from tailtrace.analytics.alerting.watching import metric_of, watches
from tailtrace.analytics.jobs import change_rows, episode_rows, outbox, series, signals
from tailtrace.analytics.jobs.signals import Where
from tailtrace.analytics.queries.goals import NONE_SET, Goal, service_goals
from tailtrace.analytics.queries.recorded import RecordedEpisode
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.store import Store

_MS: Final = 1_000_000
MAX_REPLAY_MINUTES: Final = 3 * 1440


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message: where it went, how often it was tried, why it failed."""

    id: str
    event: str
    channel: str
    state: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class Alert(RecordedEpisode):
    """An episode with what was said of it. `state`: open, acknowledged or resolved; muted ones say until when."""

    body: dict[str, Any]
    messages: list[Delivery]


@dataclass(frozen=True, slots=True)
class AlertList:
    alerts: list[Alert]
    total: int
    next: None


@dataclass(frozen=True, slots=True)
class Fired:
    """A rule would have fired from `since` to `until` (null: to the end of the replay)."""

    since_unix_ns: str
    until_unix_ns: str | None
    summary: str


def list_alerts(store: Store, *, state: str = "", limit: int = 200) -> AlertList:
    """Episodes of all time, newest first."""
    found = [each for each in episode_rows.load(store, 0, 2_000) if state in ("", each.state)]
    messages = outbox.of_episodes(store, [each.id for each in found[:limit]])
    shown = [_alert(each, messages) for each in found[:limit]]
    return AlertList(shown, len(found), None)


def get_alert(store: Store, identity: str) -> Alert:
    """One episode with its messages. Raises NotFound."""
    found = episode_rows.one(store, identity)
    if found is None:
        raise NotFound(f"there is no alert {identity[:40]!r}")
    return _alert(found, outbox.of_episodes(store, [identity]))


def _alert(each: Episode, messages: list[outbox.Message]) -> Alert:
    own = [
        Delivery(one.id, one.event, one.channel, one.state, one.attempts, one.error)
        for one in sorted(messages, key=lambda one: (one.created_ms, one.id))
        if each.id in one.episode.split(",")
    ]
    return Alert(
        each.id, each.rule, each.state, str(each.opened_ms * _MS),
        None if each.ended_ms is None else str(each.ended_ms * _MS),
        None if each.muted_ms is None else str(each.muted_ms * _MS), each.reopened, each.flapping, each.summary,
        dict(each.body), own,
    )  # fmt: skip


def replay(
    store: Store, rule: Any, since_s: int, until_s: int, where: Where, told: Mapping[str, Goal] = NONE_SET
) -> list[Fired]:
    """When a rule would have fired over stored history, services being for what they are now (`told`: those that were
    set). Raises Rejected for a range that is too long to replay.
    """
    goals = service_goals(store, told)
    if rule.kind == "regression":
        rows = [row for row in change_rows.load(store, since_s) if row.onset < until_s]
        changed = signals.regressions(store, rule, rows, where, goals)
        return [
            Fired(str(each.known_ms * _MS), None if each.firing else str((each.until_ms or 0) * _MS), each.summary)
            for each in sorted(changed, key=lambda each: each.known_ms)
        ]
    if until_s - since_s > MAX_REPLAY_MINUTES * 60:
        raise Rejected(f"a replay of this rule covers at most {MAX_REPLAY_MINUTES // 1440} days; give a shorter range")
    if rule.kind == "silence":
        raise Rejected("a silence rule looks at when telemetry arrived, which history does not repeat")
    services = series.services(store, since_s, until_s)
    found: list[Fired] = []
    for service in services:
        if not watches(rule, metric_of(rule), service, goals):
            continue
        began: Signal | None = None
        for at, signal in signals.over_time(store, rule, service, since_s, until_s, where):
            if signal.firing and began is None:
                began = signal
            elif not signal.firing and began is not None:
                found.append(Fired(str(began.known_ms * _MS), str(at * 1000 * _MS), began.summary))
                began = None
        if began is not None:
            found.append(Fired(str(began.known_ms * _MS), None, began.summary))
    return found

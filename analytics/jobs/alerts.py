"""The `alerts` job: rules to signals, signals to episodes, events to the outbox.

An episode is written after its messages are in the outbox: killed in between, the next round comes to the same
messages, which are in already, and writes the episode.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from tailtrace.analytics.alerting import book
from tailtrace.analytics.alerting.episodes import Episode, Event, Signal, episode_id, over, step
from tailtrace.analytics.alerting.rules import DEFAULT_RULE
from tailtrace.analytics.alerting.watching import metric_of, watches
from tailtrace.analytics.freshness import watermark_ns
from tailtrace.analytics.jobs import change_rows, episode_rows, outbox, series, signals
from tailtrace.analytics.jobs.outbox import Message, message_id
from tailtrace.analytics.jobs.signals import Where
from tailtrace.analytics.queries.goals import Goal, goals_of, service_goals
from tailtrace.analytics.queries.telemetry import telemetry
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

DIGEST: Final = 5
"""More new alerts than this for a channel in one round become one message."""
_KEPT_S: Final = 7 * 86_400
_lock = threading.Lock()


def where_of(settings: ServerSettings) -> Where:
    """Base of permalinks and the reader's zone."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    scheme = "https" if settings.tls_cert else "http"
    return Where(settings.public_url.rstrip("/") or f"{scheme}://{host}:{settings.port}", settings.time_zone)


def run_alerts(store: Store, settings: ServerSettings, *, now_ms: int | None = None) -> int:
    """One round; gives how many messages it put into the outbox."""
    with _lock:
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        kept = book.load(store, settings.alerts_file)
        goals = service_goals(store, goals_of(settings.goals))
        found = gathered(store, kept.rules.values(), now, where_of(settings), goals)
        known = {each.id: each for each in episode_rows.load(store, now // 1000 - _KEPT_S)}
        changed: list[Episode] = []
        events: list[tuple[Episode, Event, Any]] = []
        for signal in found:
            before = known.get(episode_id(signal.rule, signal.cause))
            after, event = step(before, signal, now)
            if after is not None and after != before:
                changed.append(after)
                if event is not None:
                    events.append((after, event, kept.rules[signal.rule]))
        spoken = {episode_id(signal.rule, signal.cause) for signal in found}
        for each in _gone(store, kept, [one for one in known.values() if one.id not in spoken], now, goals):
            after, event = over(each, now, now, "gone")
            changed.append(after)
            if event is not None:
                events.append((after, event, kept.rules.get(each.rule, DEFAULT_RULE)))
        put = outbox.put(store, _messages(events, kept, where_of(settings), now))
        episode_rows.save(store, changed)
        return put


def gathered(store: Store, rules: Any, now_ms: int, where: Where, goals: Mapping[str, Goal]) -> list[Signal]:
    """What all enabled rules say now, each of the services whose goal it fits."""
    found: list[Signal] = []
    enabled = [rule for rule in rules if rule.enabled]
    changes = change_rows.load(store, now_ms // 1000 - _KEPT_S) if _any(enabled, "regression") else []
    services: list[str] = []
    until_s = 0
    if _any(enabled, "threshold", "slo"):
        watermark = watermark_ns(store)
        if watermark is not None:
            until_s = min(now_ms // 1000, watermark // 10**9 - 5) // 60 * 60
            services = series.services(store, until_s - 3600, until_s)
    for rule in enabled:
        if rule.kind == "regression":
            found += signals.regressions(store, rule, changes, where, goals)
        elif rule.kind == "silence":
            found += signals.silence(store, rule, now_ms, where)
        else:
            for service in services:
                if not watches(rule, metric_of(rule), service, goals):
                    continue
                found += [signal for _, signal in signals.over_time(store, rule, service, until_s - 60, until_s, where)]
    return found


def _gone(
    store: Store, kept: book.Book, silent: Sequence[Episode], now_ms: int, goals: Mapping[str, Goal]
) -> list[Episode]:
    """Open episodes that no rule speaks of any more: the rule is gone or off, the service was quiet for a day, or the
    figure is none that the rule watches of it (since its goal is another one, say).
    """
    going = [each for each in silent if each.state != "resolved"]
    if not going:
        return []
    there = {each.service for each in telemetry(store, now_ms).telemetry}
    on = {name: rule for name, rule in kept.rules.items() if rule.enabled}
    return [
        each
        for each in going
        if each.rule not in on
        or each.body.get("service") not in there
        or not watches(on[each.rule], str(each.body.get("metric")), str(each.body.get("service")), goals)
    ]


def _any(rules: Sequence[Any], *kinds: str) -> bool:
    return any(rule.kind in kinds for rule in rules)


def _messages(
    events: Sequence[tuple[Episode, Event, Any]], kept: book.Book, where: Where, now_ms: int
) -> list[Message]:
    made: list[Message] = []
    for channel in kept.channels:
        own = [(episode, event) for episode, event, rule in events if channel in kept.channels_of(rule)]
        news = [episode for episode, event in own if event == "firing"]
        if len(news) > DIGEST:
            made.append(_digest(news, channel, where, now_ms))
            own = [(episode, event) for episode, event in own if event != "firing"]
        made += [_message(episode, event, channel, where, now_ms) for episode, event in own]
    return made


def _message(episode: Episode, event: str, channel: str, where: Where, now_ms: int) -> Message:
    payload = {
        "event": event,
        "episode": episode.id,
        "rule": episode.rule,
        "summary": episode.summary,
        "opened_unix_s": episode.opened_ms / 1000,
        "ended_unix_s": None if episode.ended_ms is None else episode.ended_ms / 1000,
        "reopened": episode.reopened,
        "body": dict(episode.body),
        "links": {"alerts": f"{where.base}/alerts"},
        "mute": f"tailtrace alerts mute {episode.id} --until 2h",
    }
    key = message_id(episode.id, event, episode.reopened, channel)
    return Message(key, episode.id, event, channel, orjson.dumps(payload).decode(), "pending", 0, now_ms, "", now_ms)


def _digest(episodes: Sequence[Episode], channel: str, where: Where, now_ms: int) -> Message:
    ids = ",".join(sorted(each.id for each in episodes))
    payload = {
        "event": "digest",
        "summary": f"{len(episodes)} alerts",
        "alerts": [{"episode": each.id, "rule": each.rule, "summary": each.summary} for each in episodes],
        "links": {"alerts": f"{where.base}/alerts"},
    }
    key = message_id(ids, "digest", 0, channel)
    return Message(key, ids, "digest", channel, orjson.dumps(payload).decode(), "pending", 0, now_ms, "", now_ms)

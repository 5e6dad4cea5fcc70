"""Alerts and objectives follow what a service is for."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from made_traffic import START_S, between, insert_traffic

from tailtrace.analytics.alerting.book import load, put
from tailtrace.analytics.alerting.rules import Channel, parse_rule
from tailtrace.analytics.alerting.watching import watches
from tailtrace.analytics.jobs import change_rows, episode_rows
from tailtrace.analytics.jobs.alerts import run_alerts, where_of
from tailtrace.analytics.jobs.changes import run_changes
from tailtrace.analytics.jobs.progress import SHARDS, Progress, advance
from tailtrace.analytics.queries.alerts import replay
from tailtrace.analytics.queries.changes import list_changes
from tailtrace.analytics.queries.goals import Goal
from tailtrace.analytics.queries.objectives import objectives
from tailtrace.analytics.queries.rule_states import rule_states
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

HOUR = 3600
T = START_S // 3600 * 3600
SLOW_S = START_S + 6 * HOUR


def prepared(store: Store, *rules: dict[str, Any]) -> None:
    """Rules, and one channel that nobody listens on."""
    put(store, load(store, None), "channel", Channel(name="hook", url="http://127.0.0.1:1/"))
    for rule in rules:
        put(store, load(store, None), "rule", parse_rule(rule))


def run(store: Store, settings: ServerSettings, at_s: int, goals: str = "") -> None:
    advance(store, range(SHARDS), Progress(round=at_s, upto_ms=at_s * 1000))
    run_alerts(store, settings.model_copy(update={"goals": goals}), now_ms=at_s * 1000)


def told(store: Store) -> list[tuple[str, dict[str, Any]]]:
    rows = store.query("SELECT Event AS event, Payload AS payload FROM outbox FINAL ORDER BY CreatedAt, Event, Payload")
    return [(str(row["event"]), orjson.loads(row["payload"])) for row in rows]


@pytest.mark.parametrize(
    ("rule", "metric", "online", "offline"),
    [
        ({}, "duration", True, True),
        ({}, "ttft", True, False),
        ({}, "tpot", True, False),
        ({"metrics": ["ttft"]}, "ttft", True, True),
        ({"metrics": ["ttft"]}, "duration", False, False),
        ({"service": "a"}, "tpot", True, False),
        ({"service": "b"}, "duration", False, False),
        ({"kind": "slo", "sli": "goodput", "ttft_within": "1s", "objective": 0.9}, "goodput", True, False),
        ({"kind": "slo", "sli": "availability", "objective": 0.9}, "availability", True, True),
        ({"kind": "slo", "sli": "per_token", "within": "9ms", "objective": 0.9}, "per_token", False, True),
        ({"kind": "slo", "sli": "tokens_per_s", "tokens_per_s": 9, "objective": 0.9}, "tokens_per_s", False, True),
        ({"kind": "threshold", "metric": "ttft", "above": "1s"}, "ttft", True, False),
        ({"kind": "threshold", "metric": "ttft", "above": "1s", "service": "a"}, "ttft", True, True),
    ],
)
def test_a_rule_means_what_it_names_else_what_the_service_is_for(
    rule: dict[str, Any], metric: str, online: bool, offline: bool
) -> None:
    made = parse_rule({"name": "r", **rule})
    assert watches(made, metric, "a", {"a": "online"}) is online
    assert watches(made, metric, "a", {"b": "offline"}) is online
    assert watches(made, metric, "a", {"a": "offline"}) is offline


def moved_queue(store: Store, streaming: str) -> int:
    """Later first tokens in requests that take as long as before; gives the end."""
    end = SLOW_S + 1500
    moved = {"queue": between(SLOW_S, end, 100.0), "decode": between(SLOW_S, end, -100.0)}
    insert_traffic(store, START_S, end, per_minute=40, extra=moved, tokens=100, streaming=streaming)
    run_changes(store, watermark=(end + 10) * 10**9)
    assert {row.metric for row in change_rows.load(store, 0) if row.confirmed} >= {"ttft"}
    assert "duration" not in {row.metric for row in change_rows.load(store, 0) if row.confirmed}
    return end


def test_later_first_tokens_of_an_offline_service_are_shown_and_not_sent(
    store: Store, settings: ServerSettings
) -> None:
    prepared(store)
    end = moved_queue(store, "false")
    run(store, settings, end)
    assert told(store) == []
    assert {(one.metric, one.state) for one in list_changes(store).changes} >= {("ttft", "confirmed")}
    watched = rule_states(store, load(store, None).rules["regressions"], end * 1000)
    assert {one.metric for one in watched} == {"duration"}
    run(store, settings, end + 15, goals="chat=online")
    assert [event for event, _ in told(store)] == ["firing"]


def test_a_rule_that_names_first_tokens_is_told_of_them_whatever_the_goal(
    store: Store, settings: ServerSettings
) -> None:
    prepared(store, {"name": "regressions", "metrics": ["ttft"]})
    run(store, settings, moved_queue(store, "false"))
    ((event, message),) = told(store)
    assert (event, message["body"]["metric"], message["body"]["goal"]) == ("firing", "ttft", "offline")


def test_slower_work_of_an_offline_service_is_told_by_token_and_tokens(store: Store, settings: ServerSettings) -> None:
    """40 requests of 100 tokens a minute, at about 2.7 ms a token and then 5.7."""
    prepared(store)
    end = SLOW_S + 1500
    insert_traffic(
        store, START_S, end, per_minute=40, extra={"decode": between(SLOW_S, end, 300.0)}, tokens=100, streaming="false"
    )
    run_changes(store, watermark=(end + 10) * 10**9)
    run(store, settings, end)
    ((event, message),) = told(store)
    body = message["body"]
    assert (event, body["metric"], body["goal"]) == ("firing", "duration", "offline")
    assert body["before"]["per_token_ns"] == pytest.approx(2.7e6, rel=0.05)
    assert body["after"]["per_token_ns"] == pytest.approx(5.7e6, rel=0.05)
    assert body["before"]["tokens_per_s"] == pytest.approx(4000 / 60, rel=0.02)
    assert " a token, " in message["summary"]
    assert " tokens/s) since" in message["summary"]


@pytest.mark.parametrize(
    ("limits", "goals", "fires"),
    [
        ({"sli": "per_token", "within": "5ms"}, "chat=offline", True),
        ({"sli": "per_token", "within": "20ms"}, "chat=offline", False),
        ({"sli": "per_token", "within": "5ms"}, "", False),
        ({"sli": "per_token", "within": "5ms", "service": "chat"}, "", True),
        ({"sli": "tokens_per_s", "tokens_per_s": 10}, "chat=offline", True),
        ({"sli": "tokens_per_s", "tokens_per_s": 8}, "chat=offline", False),
        ({"sli": "tpot", "within": "5ms"}, "chat=offline", False),
        ({"sli": "tpot", "within": "5ms"}, "chat=online", True),
    ],
)
def test_objectives_on_work_done(
    store: Store, settings: ServerSettings, limits: dict[str, Any], goals: str, fires: bool
) -> None:
    """Five requests of 100 tokens a minute: 8.3 tokens a second; from T on at about 12 ms a token."""
    prepared(store, {"name": "work", "kind": "slo", "objective": 0.95, **limits})
    slow = {"decode": between(T, T + HOUR, 900.0)}
    insert_traffic(store, T - 2 * HOUR, T + HOUR, per_minute=5, extra=slow, tokens=100)
    run(store, settings, T + HOUR, goals)
    assert [event for event, _ in told(store)] == (["firing"] if fires else [])


def test_objectives_stand_for_services_whose_goal_they_fit(store: Store, settings: ServerSettings) -> None:
    """One that fails a fifth of its requests: of those in busy minutes only these are bad."""
    insert_traffic(store, T, T + HOUR, per_minute=40, tokens=100, services=("batch", "chat"))
    insert_traffic(store, T, T + HOUR, per_minute=10, tokens=100, services=("batch",), outcome="error", seed=2)
    rule = parse_rule(
        {"name": "r", "kind": "slo", "objective": 0.9, "sli": "tokens_per_s", "tokens_per_s": 60, "min_n": 1}
    )
    goals: dict[str, Goal] = {"batch": "offline"}
    (one,) = objectives(store, [rule], (T + HOUR) * 1000, goals)
    assert (one.service, one.tokens_per_s, one.limits_ns, one.n) == ("batch", 60.0, {}, 3000)
    assert one.good == pytest.approx(0.8)
    (fired,) = replay(store, rule, T, T + HOUR, where_of(settings), goals)
    assert "batch burns its error budget" in fired.summary
    assert "(at least 60 tokens/s, objective 90 %)" in fired.summary


def test_an_alert_ends_when_its_service_is_said_to_be_for_something_else(
    store: Store, settings: ServerSettings
) -> None:
    slow = {"name": "slow", "kind": "threshold", "metric": "ttft", "q": 0.5, "above": "500ms", "min_n": 20}
    prepared(store, slow)
    insert_traffic(store, T, T + HOUR, extra={"queue": between(T, T + HOUR, 2000.0)})
    run(store, settings, T + 1800)
    run(store, settings, T + 1860, goals="chat=offline")
    assert [event for event, _ in told(store)] == ["firing", "resolved"]
    (episode,) = episode_rows.load(store, 0)
    assert episode.body["outcome"] == "gone"

"""The `changes` job on stored requests: series, routes, cost shifts, and what comes on top of a change."""

from __future__ import annotations

import pyarrow as pa
import pytest
from made_traffic import START_S, between, insert_traffic

from tailtrace.analytics.alerting.book import load, put
from tailtrace.analytics.alerting.message import of_change
from tailtrace.analytics.alerting.rules import Channel
from tailtrace.analytics.jobs import change_rows, outbox
from tailtrace.analytics.jobs.alerts import run_alerts
from tailtrace.analytics.jobs.change_rows import ChangeRow
from tailtrace.analytics.jobs.changes import run_changes
from tailtrace.analytics.jobs.markers import load as load_markers
from tailtrace.analytics.queries.changes import list_changes
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

SECOND = 1_000_000_000
HOUR = 3600
SLOW_S = START_S + 6 * HOUR


def judge(store: Store, until_s: int) -> None:
    run_changes(store, watermark=(until_s + 10) * SECOND)


def confirmed(store: Store) -> list[ChangeRow]:
    return sorted(
        (row for row in change_rows.load(store, 0) if row.confirmed is not None),
        key=lambda row: (row.onset, row.series),
    )


def test_fifty_routes_slowed_by_one_tokenizer_are_one_message(store: Store, settings: ServerSettings) -> None:
    routes = tuple(f"/v1/route-{n:02d}" for n in range(50))
    put(store, load(store, None), "channel", Channel(name="hook", url="http://127.0.0.1:1/"))
    end = SLOW_S + 1500
    slow = {"tokenize": between(SLOW_S, end, 300.0)}
    insert_traffic(store, START_S, end, routes=routes, per_minute=6.5, extra=slow)
    judge(store, end)
    found = [row for row in confirmed(store) if row.metric == "duration"]
    assert {row.route for row in found} == {"", *routes}
    assert {row.stage for row in found} == {"tokenize"}
    assert len({row.cause for row in confirmed(store)}) == 1
    run_alerts(store, settings, now_ms=end * 1000)
    run_alerts(store, settings, now_ms=end * 1000 + 15_000)
    rows = store.query("SELECT Event AS event, Payload AS payload FROM outbox FINAL")
    assert [row["event"] for row in rows] == ["firing"]
    assert "51 services, models and routes" in str(rows[0]["payload"])
    assert outbox.run_outbox(store, {}, end * 1000) == 0


def test_one_slow_route_among_others_is_named(store: Store) -> None:
    """A route with a twentieth of the traffic: hardly anything of all requests, everything of its own."""
    end = SLOW_S + 3000
    insert_traffic(store, START_S, end, routes=tuple(f"/v1/r{n}" for n in range(19)), per_minute=6)
    insert_traffic(
        store, START_S, end, routes=("/v1/rerank",), per_minute=6, seed=2, extra={"queue": between(SLOW_S, end, 80.0)}
    )
    judge(store, end)
    assert {row.route for row in confirmed(store)} - {""} == {"/v1/rerank"}
    assert {row.stage for row in confirmed(store)} == {"queue"}
    summary, body = of_change(confirmed(store), "http://tt", "UTC")
    assert body["route"] == "/v1/rerank"
    assert "of chat /v1/rerank rose from" in summary
    assert "route=%2Fv1%2Frerank" in body["links"]["requests"]


def test_a_stage_that_grew_while_the_request_did_not_is_listed_and_not_sent(
    store: Store, settings: ServerSettings
) -> None:
    put(store, load(store, None), "channel", Channel(name="hook", url="http://127.0.0.1:1/"))
    back = SLOW_S + 3 * HOUR
    end = back + 3 * HOUR
    moved = {"tokenize": between(SLOW_S, back, 6.0), "queue": between(SLOW_S, back, -6.0)}
    insert_traffic(store, START_S, end, per_minute=40, extra=moved)
    for at in range(SLOW_S + HOUR, end + 1, HOUR):
        judge(store, at)
    run_alerts(store, settings, now_ms=end * 1000)
    (shift,) = [each for each in list_changes(store).changes if each.state == "cost_shift"]
    assert (shift.stage, shift.metric, shift.confirmed_unix_ns) == ("tokenize", "duration", None)
    assert abs(int(shift.onset_unix_ns) // SECOND - SLOW_S) <= HOUR
    assert shift.until_unix_ns is not None
    assert abs(int(shift.until_unix_ns) // SECOND - back) <= HOUR
    assert shift.detail is not None
    assert shift.detail["growth"][0]["after_ns"] > 1.5 * shift.detail["growth"][0]["before_ns"]
    assert confirmed(store) == []
    assert store.query("SELECT count() AS n FROM outbox")[0]["n"] == 0


def test_a_second_regression_on_top_of_the_first_is_a_change_of_its_own(store: Store) -> None:
    second = SLOW_S + 4 * HOUR
    over = second + 2 * HOUR
    end = over + 2 * HOUR
    worse = {"decode": between(SLOW_S, over, 60.0), "tokenize": between(second, over, 100.0)}
    insert_traffic(store, START_S, end, per_minute=40, extra=worse)
    for at in range(SLOW_S + HOUR, end + 1, HOUR):
        judge(store, at)
    rows = [row for row in confirmed(store) if row.metric == "duration"]
    assert [(row.on_top, row.stage, row.state) for row in rows] == [
        (False, "decode", "resolved"),
        (True, "tokenize", "resolved"),
    ]
    assert abs(rows[1].onset - second) <= 600
    assert rows[0].cause != rows[1].cause
    assert rows[1].until is not None
    assert abs(rows[1].until - over) <= 900


def test_a_series_says_how_much_it_has_learnt(store: Store) -> None:
    insert_traffic(store, START_S, START_S + HOUR, per_minute=20)
    judge(store, START_S + HOUR)
    (state,) = [each for each in list_changes(store).series if each.metric == "duration"]
    assert (state.learning, state.learning_of) == (1200, 2000)
    insert_traffic(store, START_S + HOUR, START_S + 4 * HOUR, per_minute=20)
    judge(store, START_S + 4 * HOUR)
    (state,) = [each for each in list_changes(store).series if each.metric == "duration"]
    assert (state.learning, state.learning_of, state.covered) == (0, 0, 1.0)


@pytest.mark.parametrize(("late_s", "judged_to"), [(1, SLOW_S), (1800, SLOW_S - 1800)])
def test_nothing_is_judged_before_it_is_complete(store: Store, late_s: int, judged_to: int) -> None:
    """Where requests usually come half an hour late, the newest half hour is not judged yet."""
    insert_traffic(store, START_S, SLOW_S, per_minute=20)
    delay = (
        f"ReceivedAt = fromUnixTimestamp64Milli(toUnixTimestamp64Milli(toDateTime64(End, 3, 'UTC')) + {late_s * 1000})"
    )
    store.command(f"ALTER TABLE requests UPDATE {delay} WHERE 1 SETTINGS mutations_sync = 1")
    judge(store, SLOW_S)
    (state,) = [each for each in list_changes(store).series if each.metric == "duration"]
    assert abs(int(state.judged_up_to_unix_ns) // SECOND - judged_to) <= 300


@pytest.mark.parametrize(("more_ms", "verdict"), [(30.0, "slower"), (0.0, "no_different"), (-30.0, "faster")])
def test_a_deploy_is_tested_before_and_after(store: Store, more_ms: float, verdict: str) -> None:
    end = SLOW_S + HOUR
    insert_traffic(store, START_S, SLOW_S, per_minute=20, version="1.8.1")
    insert_traffic(
        store, SLOW_S, end, per_minute=20, version="1.8.2", extra={"decode": between(SLOW_S, end, more_ms)}, seed=2
    )
    judge(store, end)
    judge(store, end + 300)  # markers of a round that tells a change are judged by the next
    insert_traffic(store, end, end + 300, version="1.8.2")
    judge(store, end + 300)
    (marker,) = load_markers(store, 0)
    assert (marker.kind, marker.was, marker.became) == ("version", "1.8.1", "1.8.2")
    assert marker.time_ms // 1000 == SLOW_S - 1  # when its first request began
    assert marker.effect is not None
    assert marker.effect["verdict"] == verdict


def test_a_new_deployment_of_the_same_version_is_a_marker(store: Store) -> None:
    for replica, since, name in (("a", START_S, "blue"), ("b", START_S + HOUR, "green")):
        insert_traffic(store, since, since + HOUR, replica=replica, version="1")
        attributes = {"service.instance.id": replica, "deployment.name": name}
        kind = pa.map_(pa.string(), pa.string())
        columns = {
            "Hash": pa.array([ord(replica)], pa.uint64()), "Attributes": pa.array([list(attributes.items())], kind),
            "SeenAt": pa.array([since * 1000], pa.timestamp("ms", "UTC")),
        }  # fmt: skip
        store.insert_arrow("resources", pa.table(columns))
    judge(store, START_S + 2 * HOUR)
    (marker,) = load_markers(store, 0)
    assert (marker.kind, marker.was, marker.became) == ("deployment.name", "blue", "green")
    assert marker.time_ms // 1000 == START_S + HOUR - 1

"""Rounds of the `alerts` job over stored requests: which messages come, and that no others do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pytest
from made_traffic import START_S, between, insert_traffic

from tailtrace.analytics.alerting.book import delete, load, put
from tailtrace.analytics.alerting.episodes import Episode
from tailtrace.analytics.alerting.rules import Channel, parse_rule
from tailtrace.analytics.jobs import alerts, episode_rows, outbox
from tailtrace.analytics.jobs.alerts import run_alerts
from tailtrace.analytics.jobs.changes import run_changes
from tailtrace.analytics.jobs.progress import SHARDS, Progress, advance
from tailtrace.analytics.queries.alerts import replay
from tailtrace.analytics.queries.rule_states import rule_states
from tailtrace.analytics.queries.telemetry import telemetry
from tailtrace.errors import Rejected
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

MINUTE, HOUR = 60, 3600
T = START_S // 3600 * 3600
SLOW = {"name": "slow", "kind": "threshold", "metric": "duration", "q": 0.5, "above": "1s", "window": "5m",
        "hold": "5m", "min_n": 20}  # fmt: skip
QUIET = {"name": "quiet", "kind": "silence", "after": "15m"}


@pytest.fixture
def book(store: Store) -> Callable[..., None]:
    """Writes rules, and one channel that nobody listens on."""

    def made(*rules: dict[str, Any]) -> None:
        put(store, load(store, None), "channel", Channel(name="hook", url="http://127.0.0.1:1/"))
        for rule in rules:
            put(store, load(store, None), "rule", parse_rule(rule))

    return made


def run(store: Store, settings: ServerSettings, *at_s: int) -> None:
    """Rounds as of these Unix seconds, with everything received until then judged."""
    for at in at_s:
        advance(store, range(SHARDS), Progress(round=at, upto_ms=at * 1000))
        run_alerts(store, settings, now_ms=at * 1000)


def told(store: Store) -> list[tuple[str, str]]:
    """Event and summary of every message, in order."""
    rows = store.query("SELECT Event AS event, Payload AS payload FROM outbox FINAL ORDER BY CreatedAt, Event, Payload")
    return [(str(row["event"]), str(orjson.loads(row["payload"])["summary"])) for row in rows]


def events(store: Store) -> list[str]:
    return [event for event, _ in told(store)]


def counters(store: Store, service: str, until_s: int) -> None:
    stamp = pa.array([until_s * 10**9], pa.timestamp("ns", "UTC"))
    received = pa.array([until_s * 1000], pa.timestamp("ms", "UTC"))
    columns = {"ServiceName": [service], "MetricName": ["m"], "TimeUnix": stamp, "Value": [1.0], "ReceivedAt": received}
    store.insert_arrow("otel_metrics_gauge", pa.table(columns))


def drops(store: Store, service: str, at_s: int, count: int) -> None:
    columns = {
        "Minute": pa.array([at_s], pa.timestamp("s", "UTC")), "Service": [service], "Instance": ["i"],
        "Signal": ["traces"], "Reason": ["full"], "Dropped": pa.array([count], pa.uint64()),
    }  # fmt: skip
    store.insert_arrow("client_losses", pa.table(columns))


def test_a_limit_is_told_after_its_hold_and_over_below_clear(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    """Ten minutes at 1.3 s, ten at 0.95 s (above clear), then as before."""
    book(SLOW)
    more = {"decode": lambda at: between(T, T + 600, 1000.0)(at) + between(T + 600, T + 1200, 680.0)(at)}
    insert_traffic(store, T - 900, T + 2400, extra=more)
    run(store, settings, *range(T, T + 400, 2 * MINUTE))
    assert told(store) == []
    run(store, settings, *range(T + 480, T + 1260, 2 * MINUTE))
    assert events(store) == ["firing"]
    run(store, settings, *range(T + 1260, T + 2400, 4 * MINUTE))
    assert events(store) == ["firing", "resolved"]
    assert told(store)[0][1].startswith("P50 duration of chat is 1.")


def test_too_few_requests_neither_fire_nor_clear(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    """Three requests a window are not the twenty that the rule needs; neither is nothing at all."""
    book(SLOW)
    insert_traffic(store, T - 900, T + 1800, per_minute=0.6, extra={"decode": between(T - 900, T + 1800, 30_000.0)})
    run(store, settings, *range(T, T + 1800, 5 * MINUTE))
    assert told(store) == []
    insert_traffic(store, T + 1800, T + 3000, extra={"decode": between(T, T + 3000, 2000.0)})
    run(store, settings, T + 2400, T + 3000, *range(T + 3000, T + 4200, 5 * MINUTE))
    assert events(store) == ["firing"]


def test_a_value_around_its_limit_is_told_twice_at_most_also_over_a_restart(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    """990 and 1010 ms in turn, about a limit of 1 s."""
    book({**SLOW, "window": "1m", "hold": "1m", "min_n": 10})
    swing = {"decode": lambda at: 720.0 + 20.0 * (at // 60 % 2)}
    insert_traffic(store, T, T + HOUR, per_minute=40, extra=swing)
    run(store, settings, *range(T + 60, T + 900, MINUTE))
    alerts._lock = threading.Lock()  # nothing else is kept in memory
    run(store, settings, *range(T + 900, T + 1800, MINUTE))
    assert len(events(store)) <= 2


def test_a_service_that_only_fails_burns_its_budget(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    book({"name": "answers", "kind": "slo", "sli": "availability", "objective": 0.99})
    insert_traffic(store, T - 6 * HOUR, T, per_minute=5)
    run(store, settings, T)
    assert told(store) == []
    insert_traffic(store, T, T + 2 * HOUR, per_minute=5, outcome="error")
    run(store, settings, *range(T + 1800, T + 2 * HOUR, 1800))
    assert events(store) == ["firing"]
    assert "chat burns its error budget" in told(store)[0][1]
    insert_traffic(store, T + 2 * HOUR, T + 9 * HOUR, per_minute=60)
    run(store, settings, *range(T + 2 * HOUR, T + 9 * HOUR, HOUR))
    assert events(store) == ["firing", "resolved"]


@pytest.mark.parametrize(
    ("limits", "extra", "fires"),
    [
        ({"sli": "goodput", "ttft_within": "500ms"}, {"queue": between(T, T + 9999, 900.0)}, True),
        ({"sli": "goodput", "ttft_within": "500ms"}, {"decode": between(T, T + 9999, 900.0)}, False),
        ({"sli": "ttft", "within": "500ms"}, {"queue": between(T, T + 9999, 900.0)}, True),
        ({"sli": "duration", "within": "500ms"}, {"decode": between(T, T + 9999, 900.0)}, True),
        ({"sli": "tpot", "within": "5ms"}, {"decode": between(T, T + 9999, 900.0)}, True),
        ({"sli": "tpot", "within": "5ms"}, {"queue": between(T, T + 9999, 900.0)}, False),
        ({"sli": "goodput", "tpot_within": "5ms"}, {"decode": between(T, T + 9999, 900.0)}, True),
    ],
)
def test_objectives_on_what_is_fast_enough(
    store: Store, settings: ServerSettings, book: Callable[..., None], limits: dict[str, str], extra: Any, fires: bool
) -> None:
    book({"name": "fast", "kind": "slo", "objective": 0.95, **limits})
    insert_traffic(store, T - 2 * HOUR, T + HOUR, per_minute=5, extra=extra, tokens=100)
    run(store, settings, T, T + HOUR)
    assert events(store) == (["firing"] if fires else [])


def test_no_traffic_no_telemetry_and_missing_spans_are_three_things(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    """`idle` sends counters and no requests, `dead` nothing any more, `lossy` a part of its spans, `well` all."""
    book(QUIET)
    end = T + 2 * HOUR
    insert_traffic(store, T, T + HOUR, services=("idle", "dead"))
    insert_traffic(store, T, end, services=("lossy", "well"))
    counters(store, "idle", end - MINUTE)
    counters(store, "dead", T + HOUR)
    drops(store, "lossy", T, 50)
    drops(store, "lossy", end - 600, 1550)
    run(store, settings, end)
    run(store, settings, end)
    states = {each.service: each.state for each in telemetry(store, end * 1000).telemetry}
    assert states == {"idle": "no_traffic", "dead": "no_telemetry", "lossy": "incomplete", "well": "ok"}
    assert sorted(told(store)) == [
        ("firing", "29 % of the spans of lossy are missing"),
        ("firing", "idle has had no traffic since 2026-09-21 14:59"),
        ("firing", "no telemetry of dead since 2026-09-21 15:00"),
    ]
    insert_traffic(store, end, end + 600, services=("idle", "dead", "lossy", "well"), seed=2)
    run(store, settings, end + 600, end + 660)
    assert events(store).count("resolved") == 2
    run(store, settings, end + HOUR)
    assert [each for each in told(store) if each[0] == "firing"][3:] == [("firing", "no telemetry at all")]


def test_when_traffic_stops_what_was_wrong_is_not_said_to_be_over(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    book(SLOW)
    insert_traffic(store, T, T + HOUR, extra={"decode": between(T, T + HOUR, 2000.0)})
    run(store, settings, *range(T + 1200, T + 3 * HOUR, 600))
    assert events(store) == ["firing"]
    run(store, settings, T + HOUR + 86_400 + 600)
    assert events(store) == ["firing", "resolved"]
    (episode,) = episode_rows.load(store, 0)
    assert (episode.state, episode.body["outcome"]) == ("resolved", "gone")


def test_a_rule_that_is_removed_ends_its_alerts(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    book(SLOW)
    insert_traffic(store, T, T + HOUR, extra={"decode": between(T, T + HOUR, 2000.0)})
    run(store, settings, T + 1800)
    delete(store, load(store, None), "rule", "slow")
    run(store, settings, T + 1860, T + 1920)
    assert events(store) == ["firing", "resolved"]


def test_many_at_once_are_one_digest_and_end_one_by_one(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    book(SLOW)
    services = tuple(f"s{n}" for n in range(8))
    slow = {"decode": between(T, T + HOUR, 2000.0)}
    insert_traffic(store, T, T + 2 * HOUR, services=services, per_minute=10, extra=slow)
    run(store, settings, T + 1800, T + 1860)
    assert told(store) == [("digest", "8 alerts")]
    delivered = outbox.run_outbox(
        store, load(store, None).channels, (T + 1860) * 1000, sender=lambda *_: outbox.Sent("ok")
    )
    assert delivered == 1
    run(store, settings, T + HOUR + 1200)
    assert events(store) == ["digest", *["resolved"] * 8]


def test_a_mute_is_silence_until_it_ends(store: Store, settings: ServerSettings, book: Callable[..., None]) -> None:
    """Muted while it is open, over and back within the mute: told once the mute is over and it still holds."""
    book(SLOW)
    back = T + 2 * HOUR
    more = {"decode": lambda at: between(T, T + HOUR, 2000.0)(at) + between(back, back + 2 * HOUR, 2000.0)(at)}
    insert_traffic(store, T, back + 2 * HOUR, extra=more)
    run(store, settings, T + 1800)
    (episode,) = episode_rows.load(store, 0)
    muted = Episode(**{**_fields(episode), "muted_ms": (back + HOUR) * 1000, "revision": episode.revision + 1})
    episode_rows.save(store, [muted])
    run(store, settings, *range(T + HOUR, back + HOUR, 1200))
    assert events(store) == ["firing"]
    run(store, settings, *range(back + HOUR, back + 2 * HOUR, 1200))
    assert events(store) == ["firing", "firing"]
    ids = store.query("SELECT uniqExact(Id) AS n FROM outbox")
    assert ids[0]["n"] == 2


def _fields(episode: Episode) -> dict[str, Any]:
    return {name: getattr(episode, name) for name in Episode.__slots__}


def test_killed_between_the_outbox_and_the_episode(
    store: Store, settings: ServerSettings, book: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    book(SLOW)
    insert_traffic(store, T, T + HOUR, extra={"decode": between(T, T + HOUR, 2000.0)})

    def dies(store: Store, episodes: Sequence[Episode]) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(alerts.episode_rows, "save", dies)
        with pytest.raises(SystemExit):
            run(store, settings, T + 1800)
    assert episode_rows.load(store, 0) == []
    run(store, settings, T + 1815, T + 1830)
    assert events(store) == ["firing"]
    assert len(episode_rows.load(store, 0)) == 1


def test_two_workers_in_one_round_put_one_message(
    store: Store, settings: ServerSettings, book: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second works the whole round between the first's reading and its writing."""
    book(SLOW)
    insert_traffic(store, T, T + HOUR, extra={"decode": between(T, T + HOUR, 2000.0)})
    original = alerts.gathered

    def meanwhile(*arguments: Any) -> Any:
        found = original(*arguments)
        monkeypatch.setattr(alerts, "gathered", original)
        monkeypatch.setattr(alerts, "_lock", threading.Lock())
        run_alerts(store, settings, now_ms=(T + 1800) * 1000)
        return found

    monkeypatch.setattr(alerts, "gathered", meanwhile)
    run(store, settings, T + 1800)
    assert events(store) == ["firing"]
    assert [each.revision for each in episode_rows.load(store, 0)] == [1]


def test_a_clock_that_is_set_back_repeats_and_loses_nothing(
    store: Store, settings: ServerSettings, book: Callable[..., None]
) -> None:
    """A message waits for its next attempt when the clock goes back two hours; it need not wait for them."""
    book(SLOW)
    insert_traffic(store, T, T + HOUR, extra={"decode": between(T, T + HOUR, 2000.0)})
    channels, now = load(store, None).channels, T + 1800
    run(store, settings, now)
    assert outbox.run_outbox(store, channels, now * 1000, sender=lambda *_: outbox.Sent("again", "answered 500")) == 0
    keys: list[str] = []

    def takes(channel: Channel, key: str, payload: Any) -> outbox.Sent:
        keys.append(key)
        return outbox.Sent("ok")

    for at in range(now - 2 * HOUR, now, 1800):
        run(store, settings, at)
        outbox.run_outbox(store, channels, at * 1000, sender=takes)
    assert len(keys) == 1
    assert events(store) == ["firing"]


def test_a_replay_says_when_a_rule_would_have_fired(store: Store, settings: ServerSettings) -> None:
    """The same minutes as rounds that came while it happened."""
    slow = {"decode": between(T + 1800, T + 3600, 2000.0)}
    insert_traffic(store, T, T + 2 * HOUR, extra=slow)
    where = alerts.where_of(settings)
    (fired,) = replay(store, parse_rule(SLOW), T, T + 2 * HOUR, where)
    assert T + 1800 + 300 <= int(fired.since_unix_ns) // 10**9 <= T + 1800 + 600
    assert fired.until_unix_ns is not None
    assert T + 3600 + 300 <= int(fired.until_unix_ns) // 10**9 <= T + 3600 + 600
    objective = parse_rule({"name": "o", "kind": "slo", "sli": "duration", "within": "1s", "objective": 0.99})
    (burnt,) = replay(store, objective, T, T + 2 * HOUR, where)
    assert T + 1800 < int(burnt.since_unix_ns) // 10**9 < T + 3600
    assert replay(store, parse_rule({**SLOW, "service": "other"}), T, T + 2 * HOUR, where) == []
    with pytest.raises(Rejected, match="which history does not repeat"):
        replay(store, parse_rule(QUIET), T, T + HOUR, where)
    with pytest.raises(Rejected, match="at most 3 days"):
        replay(store, parse_rule(SLOW), T - 4 * 86_400, T, where)


def test_the_states_of_a_rule_say_what_is_missing(store: Store, settings: ServerSettings) -> None:
    """Two services: one above the limit, one with three requests a window; and one that has stopped."""
    end = T + HOUR
    slow = {"decode": between(T, end, 2000.0)}
    insert_traffic(store, T, end, services=("busy",), extra=slow)
    insert_traffic(store, T, end, services=("calm",), per_minute=0.6)
    insert_traffic(store, T, T + 1200, services=("gone",))
    run(store, settings, end)
    found = {each.service: each for each in rule_states(store, parse_rule(SLOW), end * 1000)}
    assert {name: (each.state, each.telemetry) for name, each in found.items()} == {
        "busy": ("firing", "ok"), "calm": ("not_enough", "ok"), "gone": ("not_enough", "no_traffic"),
    }  # fmt: skip
    assert (found["calm"].n, found["calm"].needed, found["gone"].n, found["gone"].value) == (3, 20, 0, None)
    assert found["busy"].value is not None
    assert found["busy"].value > found["busy"].limit == 10**9
    quiet = {each.service: each.state for each in rule_states(store, parse_rule(QUIET), end * 1000)}
    assert quiet == {"busy": "clear", "calm": "clear", "gone": "firing"}
    run_changes(store, watermark=(end + 10) * 10**9)
    learning = {
        each.service: (each.state, each.n, each.needed)
        for each in rule_states(store, parse_rule({"name": "r", "metrics": ["duration"]}), end * 1000)
    }
    assert learning["busy"] == ("learning", 1200, 2000)

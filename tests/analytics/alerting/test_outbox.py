"""Messages arrive once as far as a receiver that knows ids can tell, whatever breaks on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tailtrace.analytics.alerting.channels import Sent
from tailtrace.analytics.alerting.rules import Channel
from tailtrace.analytics.jobs import outbox
from tailtrace.analytics.jobs.outbox import Message, message_id, put, run_outbox
from tailtrace.ingest.store import Store

NOW = 1_790_000_000_000
CHANNELS = {"hook": Channel(name="hook", url="http://127.0.0.1:1/")}


def message(event: str = "firing", created_ms: int = NOW) -> Message:
    key = message_id("e1", event, 0, "hook")
    return Message(key, "e1", event, "hook", "{}", "pending", 0, created_ms, "", created_ms)


class Sender:
    """Gives the listed results in turn, then ok; remembers the keys it was called with."""

    def __init__(self, *results: Sent) -> None:
        self.results = list(results)
        self.keys: list[str] = []

    def __call__(self, channel: Channel, key: str, payload: Mapping[str, Any]) -> Sent:
        self.keys.append(key)
        return self.results.pop(0) if self.results else Sent("ok")


def state(store: Store) -> list[tuple[str, str, int]]:
    return sorted((each.event, each.state, each.attempts) for each in outbox.of_episodes(store, ["e1"]))


def test_failures_are_retried_with_growing_waits_under_one_key(store: Store) -> None:
    put(store, [message()])
    sender = Sender(Sent("again", "answered 500"), Sent("again", "answered 500"), Sent("again", "ReadError"))
    times = []
    for seconds in range(0, 120, 5):
        before = len(sender.keys)
        run_outbox(store, CHANNELS, NOW + seconds * 1000, sender=sender)
        if len(sender.keys) > before:
            times.append(seconds)
    assert times == [0, 10, 30, 70]
    assert set(sender.keys) == {message().id}
    assert state(store) == [("firing", "sent", 4)]


def test_a_refusal_is_final_and_shown(store: Store) -> None:
    put(store, [message()])
    sender = Sender(Sent("never", "answered 404"))
    for hour in range(3):
        run_outbox(store, CHANNELS, NOW + hour * 3_600_000, sender=sender)
    assert len(sender.keys) == 1
    assert state(store) == [("firing", "failed", 1)]
    assert outbox.of_episodes(store, ["e1"])[0].error == "answered 404"


def test_it_gives_up_after_a_bound(store: Store) -> None:
    put(store, [message()])
    sender = Sender(*[Sent("again", "answered 503")] * 50)
    for hour in range(30):
        run_outbox(store, CHANNELS, NOW + hour * 3_600_000, sender=sender)
    assert len(sender.keys) == outbox.MAX_ATTEMPTS
    assert state(store) == [("firing", "failed", outbox.MAX_ATTEMPTS)]


def test_putting_in_twice_is_putting_in_once(store: Store) -> None:
    assert put(store, [message()]) == 1
    run_outbox(store, CHANNELS, NOW, sender=Sender())
    assert put(store, [message()]) == 0
    sender = Sender()
    run_outbox(store, CHANNELS, NOW + 5_000, sender=sender)
    assert sender.keys == []


def test_of_two_workers_one_sends(store: Store) -> None:
    put(store, [message()])
    second = Sender()

    class Meanwhile(Sender):
        def __call__(self, channel: Channel, key: str, payload: Mapping[str, Any]) -> Sent:
            run_outbox(store, CHANNELS, NOW + 1_000, sender=second, worker="b")
            return super().__call__(channel, key, payload)

    first = Meanwhile()
    run_outbox(store, CHANNELS, NOW, sender=first, worker="a")
    assert (len(first.keys), len(second.keys)) == (1, 0)


def test_killed_between_sending_and_saying_so(store: Store) -> None:
    """It comes again after the claim has run out, under the same key, so the receiver can drop it."""
    put(store, [message()])

    class Killed(Exception):
        pass

    keys = []

    def dies(channel: Channel, key: str, payload: Mapping[str, Any]) -> Sent:
        keys.append(key)
        raise Killed

    with pytest.raises(Killed):
        run_outbox(store, CHANNELS, NOW, sender=dies, worker="a")
    sender = Sender()
    run_outbox(store, CHANNELS, NOW + 30_000, sender=sender, worker="b")
    assert sender.keys == []
    run_outbox(store, CHANNELS, NOW + 61_000, sender=sender, worker="b")
    assert sender.keys == keys
    assert state(store) == [("firing", "sent", 2)]


@pytest.mark.parametrize(
    ("first", "after"),
    [(Sent("ok"), "sent"), (Sent("never", "answered 410"), "skipped")],
)
def test_an_end_is_told_only_after_its_beginning(store: Store, first: Sent, after: str) -> None:
    put(store, [message(), message("resolved", NOW + 1)])
    sender = Sender(Sent("again", "answered 500"), first)
    run_outbox(store, CHANNELS, NOW + 1, sender=sender)
    assert [each for each in state(store) if each[0] == "resolved"] == [("resolved", "pending", 0)]
    for seconds in (20, 40):
        run_outbox(store, CHANNELS, NOW + seconds * 1000, sender=sender)
    assert [each[1] for each in state(store) if each[0] == "resolved"] == [after]


def test_a_channel_that_is_gone_fails_for_good(store: Store) -> None:
    put(store, [message()])
    run_outbox(store, {}, NOW)
    assert state(store) == [("firing", "failed", 1)]


def test_a_webhook_that_does_not_answer_is_worth_another_try() -> None:
    from tailtrace.analytics.alerting.channels import send

    assert send(CHANNELS["hook"], "key", {"event": "firing"}) == Sent("again", "ConnectError")

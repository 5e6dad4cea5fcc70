"""A tokenizer that becomes slow, in virtual time through the real tables: one message with its stage, one end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from seeding import SECOND, insert_requests, request

from tailtrace.analytics.alerting import channels
from tailtrace.analytics.alerting.book import load, put
from tailtrace.analytics.alerting.channels import signature
from tailtrace.analytics.alerting.rules import Channel
from tailtrace.analytics.jobs import change_rows, outbox
from tailtrace.analytics.jobs.alerts import run_alerts
from tailtrace.analytics.jobs.changes import run_changes
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

MS = 1_000_000
START_S = 1_790_000_100 // 300 * 300
SLOW_FROM_S = START_S + 4 * 3600
SLOW_UNTIL_S = SLOW_FROM_S + 2400
END_S = SLOW_UNTIL_S + 2400


def traffic(services: tuple[str, ...], since_s: int, until_s: int, seed: int = 1) -> list[dict[str, Any]]:
    """20 requests a minute and service; between SLOW_FROM_S and SLOW_UNTIL_S tokenizing takes 300 ms more."""
    draw = np.random.default_rng([seed, since_s])
    rows = []
    for at in range(since_s, until_s, 3):
        for index, service in enumerate(services):
            tokenize = int(draw.lognormal(2.0, 0.2) * MS)
            if SLOW_FROM_S <= at < SLOW_UNTIL_S:
                tokenize += 300 * MS
            decode = int(draw.lognormal(5.5, 0.25) * MS)
            slow = at >= SLOW_FROM_S
            rows.append(
                request(
                    (at - START_S) * 100 + index, duration_ns=tokenize + decode + MS, end_ns=at * SECOND,
                    Service=service, TokenizeNs=tokenize, DecodeNs=decode, TokenizeTtftNs=tokenize,
                    TtftNs=tokenize + MS, UnexplainedTtftNs=MS, Version="1.8.2" if slow else "1.8.1", Stratum=7,
                )
            )  # fmt: skip
    return rows


class Sink(ThreadingHTTPServer):
    """A webhook that remembers what came, and answers by a list of what to do (then 200)."""

    def __init__(self, answers: list[int | str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.hang = threading.Event()
        self.seen: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        sink = self.server
        assert isinstance(sink, Sink)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sink.seen.append((dict(self.headers), body))
        answer = sink.answers.pop(0) if sink.answers else 200
        if answer == "hang":
            sink.hang.wait(30)
        if answer in ("cut", "hang"):
            self.connection.close()
            return
        self.send_response(int(answer))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def sink() -> Iterator[Sink]:
    server = Sink([])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def hook(store: Store, sink: Sink) -> None:
    put(store, load(store, None), "channel", Channel(name="hook", url=sink.url, secret="s3cret"))


def run(store: Store, settings: ServerSettings, until_s: int, *, times: int = 1) -> None:
    """All jobs as of a minute; `times` as two beats or two workers would."""
    for _ in range(times):
        run_changes(store, watermark=until_s * SECOND)
        run_alerts(store, settings, now_ms=until_s * 1000)
        outbox.run_outbox(store, load(store, None).channels, until_s * 1000)


def payloads(sink: Sink) -> list[dict[str, Any]]:
    return [json.loads(body) for _, body in sink.seen]


def test_a_regression_is_told_once_and_its_end_once(store: Store, settings: ServerSettings, sink: Sink) -> None:
    settings = settings.model_copy(update={"time_zone": "Asia/Shanghai", "public_url": "https://tt.example"})
    services = tuple(f"chat-{n}" for n in range(2))
    hook(store, sink)
    insert_requests(store, traffic(services, START_S, SLOW_FROM_S))
    run(store, settings, SLOW_FROM_S)
    assert sink.seen == []
    told_at = 0
    for at in range(SLOW_FROM_S, END_S, 300):
        insert_requests(store, traffic(services, at, at + 300))
        run(store, settings, at + 300, times=2)
        if sink.seen and not told_at:
            told_at = at + 300
    firing, resolved = payloads(sink)
    assert told_at - SLOW_FROM_S <= 600
    assert (firing["event"], resolved["event"]) == ("firing", "resolved")
    assert firing["episode"] == resolved["episode"]
    body = firing["body"]
    assert body["stage"] == "tokenize"
    assert body["stage_share"] > 0.9
    assert body["marker"]["became"] == "1.8.2"
    assert abs(body["traffic_share"]) < 0.1
    assert body["since"]["utc"] == "2026-09-21T18:15:00Z"
    assert body["since"]["local"] == "2026-09-22 02:15"
    assert len(body["examples"]) == 3
    assert all(each["url"] == f"https://tt.example/requests/{each['trace_id']}" for each in body["examples"])
    assert {each["service"] for each in change_rows_of(store)} == set(services)
    assert "(version 1.8.2)" in firing["summary"]
    assert "% of it tokenize" in firing["summary"]
    assert "traffic mix explains " in firing["summary"]
    headers, raw = sink.seen[0]
    stamp = int(headers["X-Tailtrace-Signature"].partition(",")[0].removeprefix("t="))
    assert headers["X-Tailtrace-Signature"] == signature("s3cret", stamp, raw)
    assert headers["Idempotency-Key"] == firing["id"]


def change_rows_of(store: Store) -> list[dict[str, Any]]:
    return [{"service": row.service} for row in change_rows.load(store, 0) if row.confirmed is not None]


def test_a_sink_that_fails_and_cuts_gets_one_message(store: Store, sink: Sink) -> None:
    hook(store, sink)
    sink.answers[:] = [500, "cut", 429]
    key = outbox.message_id("e", "firing", 0, "hook")
    now = START_S * 1000
    outbox.put(store, [outbox.Message(key, "e", "firing", "hook", '{"event":"firing"}', "pending", 0, now, "", now)])
    for seconds in range(0, 200, 10):
        outbox.run_outbox(store, load(store, None).channels, now + seconds * 1000)
    assert len(sink.seen) == 4
    assert {headers["Idempotency-Key"] for headers, _ in sink.seen} == {key}
    assert len({body for _, body in sink.seen}) == 1
    (message,) = outbox.of_episodes(store, ["e"])
    assert (message.state, message.attempts) == ("sent", 4)


def test_a_sink_that_does_not_answer_is_tried_again_and_holds_nobody_up(
    store: Store, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "TIMEOUT_S", 0.05)
    hook(store, sink)
    sink.answers[:] = ["hang"]
    now = START_S * 1000
    outbox.put(store, [outbox.Message("k", "e", "firing", "hook", '{"event":"firing"}', "pending", 0, now, "", now)])
    outbox.run_outbox(store, load(store, None).channels, now)
    assert outbox.of_episodes(store, ["e"])[0].error == "ReadTimeout"
    sink.hang.set()
    monkeypatch.undo()
    outbox.run_outbox(store, load(store, None).channels, now + 10_000)
    assert outbox.of_episodes(store, ["e"])[0].state == "sent"
    assert len({headers["Idempotency-Key"] for headers, _ in sink.seen}) == 1


def test_apprise_takes_title_and_words(sink: Sink) -> None:
    address = f"json://127.0.0.1:{sink.server_address[1]}/hook"
    channel = Channel(name="chat", kind="apprise", url=address)
    payload = {
        "event": "digest",
        "alerts": [{"summary": "a"}, {"summary": "b"}],
        "links": {"alerts": "http://x/alerts"},
    }
    assert channels.send(channel, "key", payload) == channels.Sent("ok")
    (said,) = payloads(sink)
    assert said["title"] == "Tailtrace: 2 alerts"
    assert said["message"].startswith("- a")
    sink.answers[:] = [500]
    assert channels.send(channel, "key", payload).result == "again"
    unknown = Channel(name="odd", kind="apprise", url="nosuchthing://x")
    assert channels.send(unknown, "key", payload).result == "never"


def test_a_refusal_is_not_repeated(store: Store, sink: Sink) -> None:
    hook(store, sink)
    sink.answers[:] = [404]
    now = START_S * 1000
    outbox.put(store, [outbox.Message("k", "e", "firing", "hook", '{"event":"firing"}', "pending", 0, now, "", now)])
    for seconds in range(0, 200, 10):
        outbox.run_outbox(store, load(store, None).channels, now + seconds * 1000)
    assert len(sink.seen) == 1
    assert outbox.of_episodes(store, ["e"])[0].error == "answered 404"


def test_late_requests_change_what_is_known_and_tell_nobody_again(
    store: Store, settings: ServerSettings, sink: Sink
) -> None:
    hook(store, sink)
    insert_requests(store, traffic(("chat",), START_S, SLOW_FROM_S + 1500))
    run(store, settings, SLOW_FROM_S + 1500)
    assert [each["event"] for each in payloads(sink)] == ["firing"]
    before = change_rows.load(store, 0)
    late = [
        {**row, "TraceId": "f" + row["TraceId"][1:]} for row in traffic(("chat",), SLOW_FROM_S - 600, SLOW_FROM_S, 2)
    ]
    insert_requests(store, late)
    run(store, settings, SLOW_FROM_S + 1500, times=3)
    assert [each["event"] for each in payloads(sink)] == ["firing"]
    assert {row.id for row in change_rows.load(store, 0) if row.state == "confirmed"} == {
        row.id for row in before if row.state == "confirmed"
    }

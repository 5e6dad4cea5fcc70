"""A regression of the lab, from the telemetry to a webhook: one message with the right stage and links that open, one
end, and a gate that says the same.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from product_process import Server, wait_until

from tailtrace.analytics.alerting.channels import signature
from tailtrace.lab import history
from tailtrace.lab.scenario import parse

SECOND = 1_000_000_000
SLOW_AT_MIN, OVER_AT_MIN, CUT_MIN, END_MIN = 150, 195, 180, 230
SCENARIO = {
    "title": "a slow look-up behind authentication came with a deploy", "hours": END_MIN / 60,
    "fleet": {"service": [{"name": "chat", "gpu": "h100-80gb", "tp": 4}]},
    # As many at each hour of the day: the test runs at any, and by night a third fewer would need longer to tell.
    "traffic": [{"service": "chat", "rate": 0.4, "daily": 0.0}],
    "cause": [{"code": "auth_dependency", "at": f"{SLOW_AT_MIN}m", "for": f"{OVER_AT_MIN - SLOW_AT_MIN}m"}],
}  # fmt: skip


class Sink(ThreadingHTTPServer):
    """A webhook that cuts the first connection and takes everything after."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hook)
        self.troubles = 1
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.keys: list[str] = []


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        sink = self.server
        assert isinstance(sink, Sink)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sink.keys.append(self.headers["Idempotency-Key"])
        if sink.troubles:
            sink.troubles -= 1
            self.connection.close()
            return
        sink.taken.append((dict(self.headers), body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def sink() -> Iterator[Sink]:
    server = Sink()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def made(start_ns: int) -> tuple[list[bytes], list[bytes]]:
    """Bodies of the scenario until `CUT_MIN`, and the rest."""
    end_ns = start_ns + END_MIN * 60 * SECOND
    bodies = list(history(parse(SCENARIO, "told"), end_unix_ns=end_ns, seed=5, steps=False))
    cut = next(n for n, body in enumerate(bodies) if _newest(body) > start_ns + CUT_MIN * 60 * SECOND)
    return bodies[:cut], bodies[cut:]


def _newest(body: bytes) -> int:
    parts = ExportTraceServiceRequest.FromString(body).resource_spans
    return max(span.end_time_unix_nano for part in parts for scope in part.scope_spans for span in scope.spans)


def test_told_once_with_its_stage_and_over_once(
    start: Callable[..., Any], tailtrace: Callable[..., Any], tmp_path: Path, sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rules = tmp_path / "alerts.toml"
    rules.write_text(
        f'[[channel]]\nname = "hook"\nurl = "http://127.0.0.1:{sink.server_address[1]}/"\nsecret_env = "HOOK_SECRET"\n'
    )
    monkeypatch.setenv("TAILTRACE_ALERTS_FILE", str(rules))
    monkeypatch.setenv("TAILTRACE_TIME_ZONE", "Asia/Shanghai")
    monkeypatch.setenv("HOOK_SECRET", "hush")
    server: Server = start().wait_ready()
    start_ns = (time.time_ns() // SECOND - END_MIN * 60) * SECOND
    first, rest = made(start_ns)

    assert all(server.send(body) for body in first)
    wait_until("the message", lambda: sink.taken, 150)
    headers, raw = sink.taken[0]
    told = json.loads(raw)
    assert told["event"] == "firing"
    assert len(set(sink.keys)) == 1  # the one that was cut off had the same
    assert headers["Idempotency-Key"] == told["id"] == sink.keys[0]
    stamp = int(headers["X-Tailtrace-Signature"].partition(",")[0].removeprefix("t="))
    assert headers["X-Tailtrace-Signature"] == signature("hush", stamp, raw)
    body = told["body"]
    assert body["stage"] == "auth"
    since = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(start_ns // SECOND + SLOW_AT_MIN * 60))
    assert abs(_minutes(body["since"]["utc"]) - _minutes(since)) <= 10
    assert body["since"]["zone"] == "Asia/Shanghai"
    assert body["before"]["n"] > 1000
    assert body["before"]["interval_ns"][0] < body["before"]["ns"] < body["after"]["ns"]
    assert len(body["examples"]) == 3
    for example in body["examples"]:
        assert server.get(f"/api/v1/requests/{example['trace_id']}")["requests"]
        assert _status(example["url"]) == 200
    assert all(_status(link) == 200 for link in [*body["links"].values(), told["links"]["alerts"]])
    listed = server.get("/api/v1/alerts")["alerts"]
    assert [(each["id"], each["state"]) for each in listed] == [(told["episode"], "open")]

    assert all(server.send(each) for each in rest)
    wait_until("the end", lambda: len(sink.taken) > 1, 150)
    over = json.loads(sink.taken[1][1])
    assert (over["event"], over["episode"]) == ("resolved", told["episode"])
    replayed = json.loads(tailtrace("alerts", "test", "regressions", "--url", server.url, "--json").stdout)
    assert [each["until_unix_ns"] is not None for each in replayed["fired"]] == [True]
    shown = tailtrace("alerts", "list", "--url", server.url).stdout
    assert "firing to hook: sent" in shown
    assert "resolved to hook: sent" in shown
    assert len(sink.taken) == 2


def _minutes(text: str) -> int:
    return int(time.mktime(time.strptime(text[:16], "%Y-%m-%dT%H:%M"))) // 60


def _status(url: str) -> int:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return int(answer.status)

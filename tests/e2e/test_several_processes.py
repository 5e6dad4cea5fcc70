"""Receivers, workers, beat and a dashboard as processes, on a server and a broker; one of each is killed.

Commands, environment, broker and health checks are those of compose.yaml, with ports and folders of this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from product_process import Part, free_ports, stop_all, wait_until
from test_crashes import SPANS, Sender

CLICKHOUSE = Path(__file__).resolve().parents[1] / "ingest" / "clickhouse_process.py"
COMPOSE = yaml.safe_load((Path(__file__).resolve().parents[2] / "compose.yaml").read_text())["services"]
SECRETS = {"CLICKHOUSE_PASSWORD": "secret", "REDIS_PASSWORD": "other-secret", "TAILTRACE_TOKEN": "token-of-all"}
START_S = 180.0
MARK = COMPOSE["worker"]["environment"]["TAILTRACE_HEARTBEAT_FILE"]

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


class Receiver(Part):
    """`tailtrace ingest`."""

    def __init__(self, name: str, folder: Path, places: dict[str, str]) -> None:
        self.port, self.otlp_port = free_ports(2)
        self.data = folder / f"data-{name}"
        options = (
            f"--data={self.data}", f"--port={self.port}", f"--otlp-http-port={self.otlp_port}", "--otlp-grpc-port=0"
        )  # fmt: skip
        super().__init__(name, folder, *composed(name, places, *options))

    def healthy(self) -> bool:
        """What the container's health check would say."""
        test = [part.replace(":8050/", f":{self.port}/") for part in COMPOSE[self.name]["healthcheck"]["test"][1:]]
        return subprocess.run([sys.executable, *test[1:]], capture_output=True, timeout=30, check=False).returncode == 0

    def send(self, body: bytes, timeout_s: float = 30) -> bool:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.otlp_port}/v1/traces", body, {"content-type": "application/x-protobuf", **BEARER}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


BEARER = {"authorization": f"Bearer {SECRETS['TAILTRACE_TOKEN']}"}


def tailtrace(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailtrace", *arguments]


def placed(text: str, places: dict[str, str]) -> str:
    """A value of the compose file: secrets filled in, and names of containers as addresses of this machine."""
    text = re.sub(r"\$\{(\w+)[^}]*\}", lambda name: SECRETS[name[1]], text)
    for name, place in places.items():
        text = text.replace(name, place)
    return text


def composed(name: str, places: dict[str, str], *options: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of one of our services."""
    service = COMPOSE[name]
    environment = {key: placed(value, places) for key, value in service["environment"].items()}
    return tailtrace(*service["command"], *options), environment


def works(service: str, mark: str) -> bool:
    """What the health check of a worker's or beat's container would say."""
    test = [part.replace(MARK, mark) for part in COMPOSE[service]["healthcheck"]["test"][2:]]
    return subprocess.run([sys.executable, *test], capture_output=True, timeout=60, check=False).returncode == 0


@pytest.fixture
def run() -> Iterator[Callable[[Part], Any]]:
    parts: list[Part] = []

    def keep(part: Part) -> Part:
        parts.append(part)
        return part

    yield keep
    stop_all([part.process for part in reversed(parts)], 15)


def test_one_of_each_is_killed_and_every_span_is_judged_once(run: Callable[[Part], Any], tmp_path: Path) -> None:
    clickhouse_port, redis_port, ui_port = free_ports(3)
    (tmp_path / "clickhouse").mkdir()
    server = [sys.executable, str(CLICKHOUSE), str(tmp_path / "clickhouse"), "secret", str(clickhouse_port)]
    places = {"clickhouse:8123": f"127.0.0.1:{clickhouse_port}", "redis:6379": f"127.0.0.1:{redis_port}"}
    # The receivers start before their server: what they take waits in their journals.
    receivers = [run(Receiver(name, tmp_path, places)) for name in ("ingest", "ingest-2")]
    redis = [part.replace("$$", "$") for part in COMPOSE["redis"]["command"]]
    redis[-1] += f" --port {redis_port} --dir {tmp_path}"
    run(Part("redis", tmp_path, redis, {"REDIS_PASSWORD": SECRETS["REDIS_PASSWORD"]}))
    for receiver in receivers:
        wait_until(f"start of {receiver.name}", lambda r=receiver: "ready" in r.told(), START_S)
    senders = [Sender(receiver, lane, pause_s=0.1) for lane, receiver in enumerate(receivers, start=1)]
    wait_until("acknowledgements without a server", lambda: all(s.acknowledged for s in senders), START_S)

    clickhouse = run(Part("clickhouse", tmp_path, server, {}))
    dashboard = run(Part("dashboard", tmp_path, *composed("dashboard", places, f"--port={ui_port}")))
    marks = {name: str(tmp_path / f"{name}.mark") for name in ("worker-1", "worker-2", "beat")}
    marked = {name: {**places, MARK: mark} for name, mark in marks.items()}
    workers = [run(Part(name, tmp_path, *composed("worker", marked[name], "--threads=1"))) for name in list(marks)[:2]]
    run(Part("beat", tmp_path, *composed("beat", marked["beat"])))
    assert all(receiver.healthy() for receiver in receivers)
    for name, mark in marks.items():
        wait_until(f"health of {name}", lambda name=name, mark=mark: works(name.partition("-")[0], mark), START_S)
    os.utime(marks["beat"], (0, 0))  # as if it had stood still, and it goes on
    wait_until("beat's next mark", lambda: works("beat", marks["beat"]), START_S)

    def sql(statement: str) -> list[int]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{ui_port}/api/v1/sql",
            json.dumps({"sql": statement}).encode(),
            {"content-type": "application/json", **BEARER},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return [int(value or 0) for value in json.load(answer)["rows"][0]]
        except OSError:
            return [0, 0]

    judged = "SELECT sum(Sign), uniqExact(TraceId) FROM requests WHERE Service = 'crash-test'"
    wait_until("judged requests", lambda: sql(judged)[0] > 0, START_S)
    for part in (receivers[0], workers[0], clickhouse, dashboard):
        part.kill()
        part.start()
    wait_until("the receiver again", lambda: receivers[0].told().count("ready after") == 2, START_S)
    before = sum(len(sender.acknowledged) for sender in senders)
    wait_until("traffic after the kills", lambda: sum(len(s.acknowledged) for s in senders) > before + 40, START_S)
    sent = SPANS * sum(len(sender.finish()) for sender in senders)

    count = "SELECT count(), uniqExact(TraceId, SpanId) FROM otel_traces WHERE ServiceName = 'crash-test'"
    wait_until("storage of all", lambda: sql(count)[0] >= sent, START_S)
    spans, distinct = sql(count)
    assert spans == distinct
    wait_until("judgement of all", lambda: sql(judged)[0] >= distinct, START_S)
    assert sql(judged) == [distinct, distinct]
    rolled = "SELECT sum(N), 0 FROM rollup_1m WHERE Service = 'crash-test' AND Metric = 'duration'"
    # The last insert's rows are there a moment before those of its views.
    wait_until("rollups of all", lambda: sql(rolled)[0] >= distinct, 30)
    assert sql(rolled)[0] == distinct

    # A receiver that goes for good leaves nothing behind.
    receivers[1].process.send_signal(signal.SIGTERM)
    assert receivers[1].process.wait(15) == 0
    drained = subprocess.run(
        tailtrace("drain", f"--data={receivers[1].data}"),
        env={**os.environ, **composed("ingest-2", places)[1]}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (drained.returncode, "nothing is left" in drained.stdout) == (0, True), drained.stderr
    assert list((receivers[1].data / "journal").rglob("*.otlp")) == []

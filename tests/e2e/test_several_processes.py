"""Receivers, workers, beat and a dashboard as processes, on a server and a broker; one of each is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from product_process import free_ports, wait_until
from test_crashes import SPANS, Sender

CLICKHOUSE = Path(__file__).resolve().parents[1] / "ingest" / "clickhouse_process.py"
START_S = 180.0

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


class Part:
    """One process of the fleet, with its log."""

    def __init__(self, name: str, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        self._command, self._environment = command, {**os.environ, **environment}
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, env=self._environment, cwd=self.log.parent
            )

    def kill(self) -> None:
        """kill -9, and to the child that holds the doors as well."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.process.kill()
        self.process.wait()
        for child in children:
            wait_until(f"end of {child}", lambda child=child: not Path(f"/proc/{child}").exists(), 20)

    def told(self) -> str:
        return self.log.read_text(errors="replace")


class Receiver(Part):
    """`tailtrace ingest`."""

    def __init__(self, number: int, folder: Path, environment: dict[str, str]) -> None:
        self.port, self.otlp_port = free_ports(2)
        self.data = folder / f"journal-{number}"
        command = tailtrace(
            "ingest", f"--data={self.data}", f"--port={self.port}", f"--otlp-http-port={self.otlp_port}",
            "--otlp-grpc-port=0",
        )  # fmt: skip
        super().__init__(f"ingest-{number}", folder, command, environment)

    def send(self, body: bytes, timeout_s: float = 30) -> bool:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.otlp_port}/v1/traces", body, {"content-type": "application/x-protobuf"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def tailtrace(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailtrace", *arguments]


@pytest.fixture
def run() -> Iterator[Callable[[Part], Any]]:
    parts: list[Part] = []

    def keep(part: Part) -> Part:
        parts.append(part)
        return part

    yield keep
    for part in reversed(parts):
        if part.process.poll() is None:
            part.process.terminate()
    for part in parts:
        try:
            part.process.wait(15)
        except subprocess.TimeoutExpired:
            part.process.kill()
            part.process.wait()


def test_one_of_each_is_killed_and_every_span_is_judged_once(run: Callable[[Part], Any], tmp_path: Path) -> None:
    clickhouse_port, redis_port, ui_port = free_ports(3)
    (tmp_path / "clickhouse").mkdir()
    server = [sys.executable, str(CLICKHOUSE), str(tmp_path / "clickhouse"), "secret", str(clickhouse_port)]
    environment = {
        "TAILTRACE_CLICKHOUSE_URL": f"http://default:secret@127.0.0.1:{clickhouse_port}/tailtrace",
        "TAILTRACE_BROKER_URL": f"redis://127.0.0.1:{redis_port}/0",
    }
    # The receivers start before their server: what they take waits in their journals.
    receivers = [run(Receiver(number, tmp_path, environment)) for number in (1, 2)]
    redis = ["redis-server", "--port", str(redis_port), "--save", "", "--dir", str(tmp_path)]
    run(Part("redis", tmp_path, redis, {}))
    for receiver in receivers:
        wait_until(f"start of {receiver.name}", lambda r=receiver: "ready" in r.told(), START_S)
    senders = [Sender(receiver, lane, pause_s=0.1) for lane, receiver in enumerate(receivers, start=1)]
    wait_until("acknowledgements without a server", lambda: all(s.acknowledged for s in senders), START_S)

    clickhouse = run(Part("clickhouse", tmp_path, server, {}))
    dashboard = run(Part("dashboard", tmp_path, tailtrace("dashboard", f"--port={ui_port}"), environment))
    workers = [run(Part(f"worker-{n}", tmp_path, tailtrace("worker", "--threads=1"), environment)) for n in (1, 2)]
    run(Part("beat", tmp_path, tailtrace("beat"), environment))

    def sql(statement: str) -> list[int]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{ui_port}/api/v1/sql",
            json.dumps({"sql": statement}).encode(),
            {"content-type": "application/json"},
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
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (drained.returncode, "nothing is left" in drained.stdout) == (0, True), drained.stderr
    assert list((receivers[1].data / "journal").rglob("*.otlp")) == []

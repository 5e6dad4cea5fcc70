from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailtrace.lab import LiveLab, Scenario
from tailtrace.lab.live.gpu_readings import EVERY_NS as GPU_READING_NS
from tailtrace.lab.paced import PacedLab


class Receiver:
    """An OTLP/HTTP receiver that keeps every span, (service, span, attributes), and every body of metrics."""

    def __init__(self) -> None:
        self.spans: list[tuple[dict[str, Any], Any, dict[str, Any]]] = []
        self.metrics: list[bytes] = []
        received = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                received.take(body) if self.path == "/v1/traces" else received.metrics.append(body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {
                pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in resource.resource.attributes
            }
            for scope in resource.scope_spans:
                for span in scope.spans:
                    own = {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}
                    self.spans.append((named, span, own))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


async def run_until(receiver: Receiver, lab: LiveLab | PacedLab, scenario: Scenario, rate: float, enough: int) -> None:
    """Run the lab until `enough` request spans of the gateway came, or a minute passed."""
    stop = asyncio.Event()
    running = asyncio.create_task(lab.run(receiver.endpoint, scenario, rate, stop))
    deadline = time.monotonic() + 60

    def count() -> int:
        return sum(span.kind == 2 and named["service.name"] == "gateway" for named, span, _ in list(receiver.spans))

    while count() < enough and time.monotonic() < deadline and not running.done():
        await asyncio.sleep(0.1)
    stop.set()
    await running


def test_real_servers_tell_every_stage_of_their_requests(receiver: Receiver) -> None:
    lab = LiveLab(seed=4)
    asyncio.run(run_until(receiver, lab, Scenario.load("live"), 20.0, 40))
    assert lab.ended["200"] > 20
    assert not {"failed", "502"} & set(lab.ended)
    traces = defaultdict(list)
    for resource, span, named in receiver.spans:
        assert resource["tailtrace.simulated"] is True
        traces[span.trace_id].append((resource["service.name"], span, named))
    whole = 0
    for spans in traces.values():
        entries = {service: span for service, span, named in spans if span.kind == 2}
        if set(entries) != {"gateway", "llm-chat"}:
            continue
        (call,) = [span for _, span, _ in spans if span.span_id == entries["llm-chat"].parent_span_id]
        assert call.parent_span_id == entries["gateway"].span_id
        assert entries["gateway"].name == entries["llm-chat"].name == "POST /v1/chat/completions"
        outcome = next(named["tailtrace.outcome"] for _, span, named in spans if span is entries["gateway"])
        if outcome == "ok":
            stages = Counter(named["tailtrace.stage"] for _, _, named in spans if "tailtrace.stage" in named)
            assert {"net_in", "auth", "rate_limit", "route", "tokenize", "engine_submit", "queue", "prefill"} <= set(
                stages
            )
            whole += 1
    assert whole > 20


def test_gpu_readings_of_a_live_run_lie_on_the_time_axis_of_its_requests(receiver: Receiver) -> None:
    asyncio.run(run_until(receiver, LiveLab(seed=4), Scenario.load("live"), 6.0, 40))
    period = GPU_READING_NS
    busy: dict[str, dict[int, float]] = defaultdict(dict)
    for body in receiver.metrics:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.gauge.data_points if metric.name == "hw.gpu.utilization" else ():
                    uuid = next(pair.value.string_value for pair in point.attributes if pair.key == "hw.id")
                    busy[uuid][point.time_unix_nano] = point.as_double
    served = 0
    for uuid, readings in busy.items():
        own = [
            (span, named) for resource, span, named in receiver.spans
            if uuid in str(resource.get("tailtrace.gpu_uuids")).split(",")
        ]  # fmt: skip
        at = sorted(readings)
        assert all(later - earlier == period for earlier, later in pairwise(at))
        for span, named in own:
            middle = (span.start_time_unix_nano + span.end_time_unix_nano) // 2
            if named.get("tailtrace.stage") == "prefill" and at[0] - period < middle < at[-1]:
                near = [readings[one] for one in at if abs(one - period // 2 - middle) <= period]
                assert max(near) > 0
                served += 1
        for one in at:
            # The reading covers the period before it; a GPU is idle where no request of its process was near.
            if all(s.start_time_unix_nano > one + period or s.end_time_unix_nano < one - 2 * period for s, _ in own):
                assert readings[one] == 0
    assert served > 10


def test_a_paced_run_posts_what_a_simulation_makes(receiver: Receiver) -> None:
    lab = PacedLab(seed=4)
    asyncio.run(run_until(receiver, lab, Scenario.load("healthy"), 15.0, 10))
    assert lab.posted > 0
    assert lab.refused == 0
    assert {resource["service.name"] for resource, _, _ in receiver.spans} > {"gateway", "embed"}


def test_a_receiver_that_is_away_is_counted() -> None:
    async def run() -> PacedLab:
        lab, stop = PacedLab(seed=4), asyncio.Event()
        running = asyncio.create_task(lab.run("http://127.0.0.1:9", Scenario.load("healthy"), 40.0, stop))
        while not lab.refused:
            await asyncio.sleep(0.05)
        stop.set()
        await running
        return lab

    lab = asyncio.run(asyncio.wait_for(run(), 60))
    assert lab.posted == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_children(receiver: Receiver, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "tailtrace.lab", "--endpoint", receiver.endpoint]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while not receiver.spans and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(how)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert b"{" in out
    deadline = time.monotonic() + 20
    while group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not group_lives(process.pid)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_command_says_what_is_wrong() -> None:
    command = [sys.executable, "-m", "tailtrace.lab", "--scenario", "nope", "--paced"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "lab: no scenario 'nope'" in done.stderr
    assert "Traceback" not in done.stderr

"""Exactly once, under kill -9 at random moments: what is acknowledged is stored, and stored once.

The owner process is started as its parent starts it, loaded by senders that repeat a body until it is acknowledged,
and killed again and again at random moments of its life, start-up included. Senders also cut connections between body
and answer and then repeat the body; some journals get a torn last record before the next start; some bodies hold a
span that must be rejected. At the end the spans, the side table, the requests and the rollups are counted against what
was sent: sent = stored + rejected + dropped.
"""

from __future__ import annotations

import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from harness import arguments, report, wait_until, workspace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tailtrace.ingest.framing import frame
from tailtrace.ingest.settings import ServerSettings

SPANS = 5
SENDERS = 6
BAD_EVERY = 11
CUT_SHARE = 0.03
TORN_SHARE = 0.3
OWNER = (sys.executable, "-m", "tailtrace.cli.processes.owner")


def trace_id(number: int) -> bytes:
    return (1 << 100 | number).to_bytes(16, "big")


def body(number: int) -> tuple[bytes, int]:
    """One trace of SPANS spans, and in every eleventh one more span that has no id; the rejected ones are counted."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    attribute = resource.resource.attributes.add()
    attribute.key, attribute.value.string_value = "service.name", "faults"
    spans = resource.scope_spans.add().spans
    now = time.time_ns()
    for k in range(SPANS):
        span = spans.add(trace_id=trace_id(number), span_id=(number * SPANS + k + 1).to_bytes(8, "big"), name="work")
        span.kind = 2 if k == 0 else 1
        if k:
            span.parent_span_id = (number * SPANS + 1).to_bytes(8, "big")
        span.start_time_unix_nano, span.end_time_unix_nano = now - 1_000_000 + k, now
    bad = int(number % BAD_EVERY == 0)
    if bad:
        spans.add(trace_id=b"", span_id=b"", name="bad", start_time_unix_nano=now, end_time_unix_nano=now)
    return bytes(request.SerializeToString()), bad


class Sender(threading.Thread):
    """Sends numbered bodies one after the other, each until it is acknowledged."""

    def __init__(self, port: int, lane: int, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"sender-{lane}", daemon=True)
        self.numbers: list[int] = []
        self.sent = self.rejected = self.cuts = self.retries = 0
        self._port, self._next, self._stop_asked = port, lane * 10_000_000, stop
        self._dice = random.Random(seed * 1000 + lane)

    def run(self) -> None:
        while not self._stop_asked.is_set():
            data, bad = body(self._next)
            rejected = self._post(data)
            while rejected is None:
                self.retries += 1
                time.sleep(0.02)
                rejected = self._post(data)
            if rejected != bad:
                raise RuntimeError(f"body {self._next}: {rejected} spans rejected, expected {bad}")
            self.numbers.append(self._next)
            self.sent += SPANS + bad
            self.rejected += rejected
            self._next += 1

    def _post(self, data: bytes) -> int | None:
        """Rejected spans of an acknowledged body; None when it must be sent again."""
        head = (
            f"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"
            f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=20) as connection:
                connection.sendall(head.encode() + data)
                if self._dice.random() < CUT_SHARE:
                    self.cuts += 1
                    return None
                answer = b""
                while part := connection.recv(65536):
                    answer += part
        except OSError:
            return None
        top, _, content = answer.partition(b"\r\n\r\n")
        if not top.startswith(b"HTTP/1.1 200"):
            return None
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", top)
        if length is None or len(content) < int(length[1]):  # killed between the head and the rest of its answer
            return None
        return int(ExportTraceServiceResponse.FromString(content).partial_success.rejected_spans)


@dataclass
class Owner:
    """One life of the owner process."""

    process: subprocess.Popen[bytes]
    pipe: int
    said: bytes = field(default=b"")

    def wait_ready(self, timeout_s: float) -> bool:
        """True once it is ready, False when the time is over first. Raises when it gives up by itself."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            while b'"ready"' not in self.said:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if selector.select(left):
                    data = os.read(self.pipe, 4096)
                    if not data:
                        raise RuntimeError(f"the owner ended by itself: {self.said!r}")
                    self.said += data
        return True

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(30)
        os.close(self.pipe)


def start(settings: ServerSettings, sockets: dict[str, socket.socket], log: Any) -> Owner:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    fds = [sock.fileno() for sock in sockets.values()]
    names = [f"--{name}={sock.fileno()}" for name, sock in sockets.items()]
    process = subprocess.Popen(
        [*OWNER, f"--parent={os.getpid()}", f"--status={write}", *names],
        stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=(write, *fds),
    )  # fmt: skip
    os.close(write)
    assert process.stdin is not None
    process.stdin.write(settings.model_dump_json().encode())
    process.stdin.close()
    return Owner(process, read)


def tear(journal: Path, dice: random.Random) -> None:
    """Leaves half a record at the end of the newest segment, as a crash in the middle of a write would."""
    segments = sorted((journal / "traces").glob("*.otlp"))
    if segments:
        data = body(9_999_999_999)[0]
        record = frame(data) + data
        with segments[-1].open("ab") as file:
            file.write(record[: dice.randrange(1, len(record))])


COUNTS = """
SELECT count() AS spans, uniqExact(TraceId, SpanId) AS distinct_spans, uniqExact(TraceId) AS traces
FROM otel_traces WHERE ServiceName = 'faults'
"""
REQUESTS = "SELECT sum(Sign) AS n, uniqExact(TraceId) AS traces FROM requests WHERE Service = 'faults'"
ROLLED_UP = "SELECT sum(N) AS n FROM rollup_1m WHERE Service = 'faults' AND Metric = 'duration'"
BOUNDS = "SELECT uniqExact(TraceId) AS n FROM otel_traces_trace_id_ts"


def ask(port: int, sql: str) -> list[int]:
    answer = httpx.post(f"http://127.0.0.1:{port}/api/v1/sql", json={"sql": sql}, timeout=60)
    answer.raise_for_status()
    return [int(value) for value in answer.json()["rows"][0]]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--kills", type=int, default=100)
    options = parser.parse_args()
    kills = 3 if options.quick else options.kills
    dice = random.Random(options.seed)
    with workspace(options.work) as work, (work / "faults.log").open("ab") as log:
        data = work / f"faults-{os.getpid()}"
        sockets = {name: socket.create_server(("127.0.0.1", 0), backlog=1024) for name in ("ui", "otlp")}
        ports = {name: sock.getsockname()[1] for name, sock in sockets.items()}
        settings = ServerSettings(data=data, port=ports["ui"], otlp_http_port=ports["otlp"], otlp_grpc_port=0)
        doors = {"otlp": sockets["otlp"]}  # without the pages a start takes a third of the time
        owner = start(settings, doors, log)
        owner.wait_ready(120)
        stop = threading.Event()
        senders = [Sender(ports["otlp"], lane + 1, options.seed, stop) for lane in range(SENDERS)]
        for sender in senders:
            sender.start()
        torn = 0
        for kill in range(kills):
            # One kill in five falls into the start itself, while the journal of the last life is being taken up.
            if dice.random() < 0.2:
                owner.wait_ready(dice.uniform(0.2, 3.0))
            else:
                owner.wait_ready(120)
                time.sleep(dice.uniform(0.0, 2.5))
            owner.end(signal.SIGKILL)
            if dice.random() < TORN_SHARE:
                torn += 1
                tear(data / "journal", dice)
            owner = start(settings, sockets if kill == kills - 1 else doors, log)
            if kill % 10 == 9:
                print(f"{kill + 1} kills, {sum(len(s.numbers) for s in senders):,} bodies acknowledged", flush=True)
        owner.wait_ready(120)
        time.sleep(1.0)
        stop.set()
        for sender in senders:
            sender.join(120)
        bodies = sum(len(sender.numbers) for sender in senders)
        sent, rejected = sum(s.sent for s in senders), sum(s.rejected for s in senders)
        try:
            wait_until(lambda: ask(ports["ui"], COUNTS)[0] >= bodies * SPANS, 60, "storing")
            wait_until(lambda: ask(ports["ui"], REQUESTS)[0] >= bodies, 60, "judging", 0.25)
        except TimeoutError as error:
            print(error)
        spans, distinct, traces = ask(ports["ui"], COUNTS)
        requests, request_traces = ask(ports["ui"], REQUESTS)
        (rolled_up,), (bounds,) = ask(ports["ui"], ROLLED_UP), ask(ports["ui"], BOUNDS)
        owner.end(signal.SIGTERM)
    print(
        f"{kills} kills ({torn} torn records, {sum(s.cuts for s in senders)} cut connections, "
        f"{sum(s.retries for s in senders)} repeats): sent {sent:,} = stored {spans:,} + rejected {rejected:,} + "
        f"dropped {sent - spans - rejected:,}; traces {traces:,}, with bounds {bounds:,}, requests {requests:,} of "
        f"{request_traces:,} traces, in rollups {rolled_up:,}"
    )
    lost = max(0, bodies * SPANS - distinct) + max(0, bodies - request_traces) + max(0, bodies - bounds)
    doubled = (spans - distinct) + abs(requests - request_traces) + abs(rolled_up - request_traces)
    report(
        "faults",
        options.seed,
        {"kills": kills, "acked": bodies, "lost": lost, "doubled": doubled, "sent": sent, "rejected": rejected},
    )
    if lost or doubled:
        sys.exit(json.dumps({"lost": lost, "doubled": doubled}))


if __name__ == "__main__":
    main()

"""Processes that die: nothing acknowledged is lost, nothing is doubled, the parent starts the owner again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from product_process import wait_until

from tailtrace.instrumentation.otlp import SpanData, encode_traces

SPANS = 20


def body(number: int) -> bytes:
    """One request body of SPANS spans, whose ids tell its number."""
    now = time.time_ns()
    spans = [
        SpanData(
            trace_id=(1 + number * SPANS + index).to_bytes(16, "big"),
            span_id=(1 + number * SPANS + index).to_bytes(8, "big"),
            parent_span_id=b"",
            name="work",
            kind=2,
            start_unix_ns=now - 1_000_000,
            end_unix_ns=now,
            attributes={"number": number},
        )
        for index in range(SPANS)
    ]
    return encode_traces({"service.name": "crash-test"}, spans)


class Sender:
    """Sends numbered bodies one after the other until told to stop, each again and again until it is acknowledged."""

    def __init__(self, server: Any, lane: int, *, pause_s: float = 0.0) -> None:
        self.acknowledged: list[int] = []
        self._server, self._lane, self._pause_s = server, lane, pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = self._lane * 1_000_000
        while not self._stop.is_set():
            data = body(number)
            while not self._server.send(data, timeout_s=5):
                if self._stop.is_set():
                    return
                time.sleep(0.02)
            self.acknowledged.append(number)
            number += 1
            self._stop.wait(self._pause_s)

    def finish(self) -> list[int]:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.acknowledged


def test_every_acknowledged_span_is_there_once_after_kills(start: Callable[..., Any]) -> None:
    server = start().wait_ready()
    senders = [Sender(server, lane) for lane in range(3)]
    for kill, number in enumerate((signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV), start=1):
        target = kill * 60
        wait_until("traffic", lambda target=target: sum(len(sender.acknowledged) for sender in senders) >= target)
        os.kill(server.owner_pid(), number)
        server.wait_ready(times=kill + 1)
    acknowledged = [sender.finish() for sender in senders]
    told = server.told()
    assert (told.count("SIGKILL"), told.count("SIGSEGV")) == (2, 1)

    # A body sent just before a kill may be stored without its sender knowing: there may be more, but never twice.
    count = "SELECT count(), uniqExact(SpanId) FROM otel_traces WHERE ServiceName = 'crash-test'"
    wait_until("storage of all", lambda: server.sql(count)[0][0] >= SPANS * sum(map(len, acknowledged)))
    assert len(set(server.sql(count)[0])) == 1
    for lane in acknowledged:
        number = "toInt64(SpanAttributes['number'])"
        ours = f"ServiceName = 'crash-test' AND {number} BETWEEN {lane[0]} AND {lane[-1]}"
        assert lane == list(range(lane[0], lane[0] + len(lane)))
        assert server.sql(f"SELECT count() FROM otel_traces WHERE {ours}")[0][0] == SPANS * len(lane)


def test_the_owner_goes_with_a_killed_parent(start: Callable[..., Any]) -> None:
    server = start().wait_ready()
    owner = server.owner_pid()
    server.process.kill()
    server.process.wait()
    wait_until("end of the owner", lambda: not alive(owner), timeout_s=10)
    again = start(server.data).wait_ready()
    assert again.get("/healthz")["status"] == "ok"
    assert again.stop(signal.SIGINT, timeout_s=10) == 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False

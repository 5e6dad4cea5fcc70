"""The background thread: takes finished records, encodes them in small slices, sends them, and retries.

Nothing here runs on a request's path except `put`. One thread encodes and sends, because only one of the two can use
the interpreter at a time anyway.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from dataclasses import dataclass
from queue import Empty
from typing import Any, Final

from tailtrace.instrumentation import clock
from tailtrace.instrumentation.buffer import Buffer, Losses
from tailtrace.instrumentation.encode import encode_item, scope_of
from tailtrace.instrumentation.otlp import encode_resource, encode_scope, join_traces
from tailtrace.instrumentation.record import streaming_now
from tailtrace.instrumentation.settings import Settings
from tailtrace.instrumentation.transport import Answer, Every, Transport

log = logging.getLogger("tailtrace")

_BATCH_SPANS: Final = 4096
_WAKE_SPANS: Final = 2048
_LOG_EVERY_S: Final = 60.0
_FIRST_BACKOFF_S: Final = 0.5
_MAX_BACKOFF_S: Final = 30.0
# Longest that encoding holds the interpreter while a request may want it.
_SLICE_S: Final = 0.0005


def fold_endless_streams() -> None:
    """A function of its own, so that this thread keeps no record alive while it encodes and sends."""
    for record in list(streaming_now.values()):
        record.fold()


@dataclass(slots=True)
class Batch:
    """Encoded spans by scope, waiting for the receiver."""

    scopes: dict[str, bytes]
    spans: int
    size: int
    give_up_at: float = 0.0


class Exporter:
    """Owns one thread. Made anew in a forked child."""

    what = "spans"

    def __init__(self, settings: Settings, resource: dict[str, Any], transport: Transport) -> None:
        self.settings = settings
        self.losses = Losses()
        self.sent = 0
        self._transport = transport
        self._resource = encode_resource(resource)
        self._buffer = Buffer(settings.buffer_spans, settings.buffer_bytes, _WAKE_SPANS, self.losses)
        self._backlog: deque[Batch] = deque()
        self._backlog_bytes = 0
        self._backoff_s = 0.0
        self._not_before = 0.0
        self._stopping = False
        self._stop_at = float("inf")
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._may_log = Every(_LOG_EVERY_S, time.monotonic)
        self._failing = False
        self.put = self._buffer.put

    def describe(self, resource: dict[str, Any]) -> None:
        """From the next batch on, this is the resource."""
        self._resource = encode_resource(resource)

    def start(self) -> None:
        """Start the thread if it does not run."""
        with self._start_lock:
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="tailtrace-export", daemon=True)
                self._thread.start()

    def flush(self, timeout_s: float) -> bool:
        """Send what has been put so far; True when the receiver took it (or it was given up) in time."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return self._buffer.spans == 0
        done = threading.Event()

        def mark() -> None:
            done.set()

        self._buffer.wake.put(mark)
        return done.wait(timeout_s)

    def shutdown(self, timeout_s: float) -> None:
        """Send what is left within `timeout_s`; what is then left is lost, counted and said."""
        if self._stopping:
            return
        self._stop_at = time.monotonic() + timeout_s * 0.9
        self._stopping = True
        self._not_before = 0.0
        self._buffer.wake.put(None)
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout_s * 0.9)
            if thread.is_alive():
                self._transport.abort()
                thread.join(timeout_s * 0.1)
        lost = self._buffer.drop_all("shutdown") + self._drop_backlog("shutdown")
        if lost:
            log.warning(
                "tailtrace: %d %s could not be sent to %s before exit", lost, self.what, self._transport.address
            )

    # The rest runs in the thread.

    def _run(self) -> None:
        waiting: list[Any] = []
        while True:
            try:
                waiting += self._wait(bool(waiting))
                self._encode_all()
                self._send_all()
                if not self._backlog:
                    for mark in waiting:
                        mark()
                    waiting = []
                if self._stopping and (not self._backlog or time.monotonic() >= self._stop_at):
                    return
            except Exception:
                # A fault of ours must not end the thread, and must not fill the log either.
                self.losses.add("fault", 0)
                if self._may_log():
                    log.exception("tailtrace: fault in the export thread")
                time.sleep(0.1)

    def _wait(self, hurry: bool) -> list[Any]:
        """Until the interval is over, enough has come in, or somebody asks; those who ask are returned."""
        now = time.monotonic()
        wait_s = self.settings.interval_s
        if self._backlog:
            wait_s = max(self._not_before - now, 0.0)
        elif hurry:
            wait_s = 0.0
        if self._stopping:
            wait_s = min(wait_s, max(self._stop_at - now, 0.0), 0.25)
        asked = []
        try:
            mark = self._buffer.wake.get(timeout=min(wait_s, 1.0)) if wait_s > 0 else self._buffer.wake.get_nowait()
            while True:
                if mark is not None:
                    asked.append(mark)
                mark = self._buffer.wake.get_nowait()
        except Empty:
            pass
        return asked

    def _encode_all(self) -> None:
        fold_endless_streams()
        anchor = clock.anchor_ns()
        while True:
            items = self._buffer.take(_BATCH_SPANS)
            if not items:
                return
            parts: dict[str, list[bytes]] = {}
            count = 0
            give_way_at = time.monotonic() + _SLICE_S
            for item, size in items:
                try:
                    encoded = encode_item(item, anchor)
                except Exception:
                    self.losses.add("unencodable", size)
                    if self._may_log():
                        log.exception("tailtrace: a record could not be encoded")
                    continue
                count += size
                parts.setdefault(scope_of(item), []).append(encoded)
                now = time.monotonic()
                if now >= give_way_at:
                    # The interpreter is handed over every so often: a request never waits for a whole batch.
                    time.sleep(0)
                    give_way_at = time.monotonic() + _SLICE_S
            scopes = {name: b"".join(encoded) for name, encoded in parts.items()}
            if scopes:
                self._keep(Batch(scopes, count, sum(map(len, scopes.values()))))

    def _keep(self, batch: Batch) -> None:
        self._backlog.append(batch)
        self._backlog_bytes += batch.size
        while self._backlog_bytes > self.settings.buffer_bytes and len(self._backlog) > 1:
            old = self._backlog.popleft()
            self._backlog_bytes -= old.size
            self.losses.add("full", old.spans)

    def _drop_backlog(self, reason: str) -> int:
        lost = sum(batch.spans for batch in self._backlog)
        self._backlog.clear()
        self._backlog_bytes = 0
        if lost:
            self.losses.add(reason, lost)
        return lost

    def _send_all(self) -> None:
        while self._backlog:
            now = time.monotonic()
            if now < self._not_before:
                return
            batch = self._backlog[0]
            batch.give_up_at = batch.give_up_at or now + self.settings.retry_for_s
            answer = self._transport.send(self._body(batch))
            if not answer.ok and answer.retry and time.monotonic() < batch.give_up_at:
                self._back_off(answer)
                return
            if self._backlog and self._backlog[0] is batch:
                self._backlog.popleft()
                self._backlog_bytes -= batch.size
            self._settle(batch, answer)

    def _body(self, batch: Batch) -> bytes:
        text = self.losses.text()
        dropped = {"tailtrace.dropped": text} if text else None
        return join_traces(
            self._resource, [(encode_scope(name, dropped), encoded) for name, encoded in batch.scopes.items()]
        )

    def _back_off(self, answer: Answer) -> None:
        self._backoff_s = min(max(self._backoff_s * 2, _FIRST_BACKOFF_S), _MAX_BACKOFF_S)
        wait_s = self._backoff_s * random.uniform(0.8, 1.2)
        if answer.retry_after_s is not None:
            wait_s = min(answer.retry_after_s, self.settings.retry_for_s)
        self._not_before = time.monotonic() + wait_s
        self._failing = True
        if self._may_log():
            log.warning(
                "tailtrace: %s does not take %s (%s); retrying, %d lost so far",
                self._transport.address, self.what, answer.reason, self.losses.total,
            )  # fmt: skip

    def _settle(self, batch: Batch, answer: Answer) -> None:
        self._backoff_s = self._not_before = 0.0
        if answer.ok:
            self.sent += batch.spans - answer.rejected
            if answer.rejected:
                self.losses.add("rejected", answer.rejected)
            if self._failing:
                self._failing = False
                log.info("tailtrace: %s takes %s again", self._transport.address, self.what)
            return
        self.losses.add("expired" if answer.retry else "refused", batch.spans)
        if self._may_log():
            log.error("tailtrace: %s refused %d %s: %s", self._transport.address, batch.spans, self.what, answer.reason)

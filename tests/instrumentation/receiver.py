"""A receiver for tests: answers as told, keeps what it took, in a thread of the test process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """`answers` are (status, headers) taken in turn; afterwards everything is taken with 200."""

    def __init__(self, answers: list[tuple[int, dict[str, str]]]) -> None:
        self.answers = answers
        self.attempts: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.attempts.append(time.monotonic())
                outer.headers.append(
                    {name.lower(): value for name, value in self.headers.items()} | {"path": self.path}
                )
                status, headers = outer.answers.pop(0) if outer.answers else (200, {})
                if status == 200:
                    outer.paths.append(self.path)
                    outer.bodies.append(body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def requests(self) -> list[ExportTraceServiceRequest]:
        """What was taken of spans; a service that runs for seconds sends points too."""
        parsed = []
        for body, path in zip(list(self.bodies), list(self.paths), strict=False):
            if path == "/v1/metrics":
                continue
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            parsed.append(request)
        return parsed

    def spans(self) -> list[tuple[str, str, str]]:
        """(service.instance.id, scope, span name) of everything taken."""
        found = []
        for request in self.requests():
            for resource in request.resource_spans:
                who = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
                for scope in resource.scope_spans:
                    found += [(who["service.instance.id"], scope.scope.name, span.name) for span in scope.spans]
        return found

    def dropped(self) -> str:
        """The newest `tailtrace.dropped`."""
        scope = self.requests()[-1].resource_spans[0].scope_spans[0].scope
        return next((pair.value.string_value for pair in scope.attributes if pair.key == "tailtrace.dropped"), "")


@contextmanager
def receiver(*answers: tuple[int, dict[str, str]]) -> Iterator[Receiver]:
    running = Receiver(list(answers))
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        running.server.server_close()


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll until `condition` holds; AssertionError after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)

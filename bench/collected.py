"""A receiver that keeps what it is sent, and what the judge makes of it: for benchmarks of real services."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailtrace.analytics.judge import judge_spans
from tailtrace.analytics.trace import Span

_KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")


@dataclass
class Collected:
    """Where to send, and the bodies that came."""

    endpoint: str
    bodies: list[bytes] = field(default_factory=list)


@contextmanager
def collecting() -> Iterator[Collected]:
    """An OTLP/HTTP receiver on a free port of this machine."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            # The loop's counters come as metrics.
            if self.path.endswith("/v1/traces"):
                bodies.append(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Collected(f"http://127.0.0.1:{server.server_port}", bodies)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def settle(collected: Collected) -> None:
    """Waits until nothing new has come for two sending intervals."""
    size, deadline = -1, time.monotonic() + 20
    while size != len(collected.bodies) and time.monotonic() < deadline:
        size = len(collected.bodies)
        time.sleep(1.2)


def spans_of(bodies: Iterable[bytes], scope: str = "tailtrace") -> list[Span]:
    """The spans of one scope (and of any other than our steps where it is empty) as the store would give them back."""
    found = []
    for body in bodies:
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {pair.key: _text(pair.value) for pair in resource_spans.resource.attributes}
            for scope_spans in resource_spans.scope_spans:
                if scope_spans.scope.name != scope and (scope or scope_spans.scope.name == "tailtrace.steps"):
                    continue
                found.extend(
                    Span(
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_span_id=span.parent_span_id.hex(),
                        name=span.name,
                        kind=_KINDS[span.kind],
                        service=resource.get("service.name", ""),
                        start_unix_ns=span.start_time_unix_nano,
                        end_unix_ns=span.end_time_unix_nano,
                        attributes={pair.key: _text(pair.value) for pair in span.attributes},
                        resource=resource,
                        scope=scope_spans.scope.name,
                    )
                    for span in scope_spans.spans
                )
    return found


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    content = getattr(value, kind)
    return str(content).lower() if kind == "bool_value" else str(content)


@dataclass(frozen=True)
class JudgedRequest:
    """One row of `requests`, in milliseconds by stage."""

    trace_id: str
    span: Span
    duration_ms: float
    unexplained_ms: float
    stages_ms: dict[str, float]
    row: dict[str, Any]

    @property
    def explained(self) -> float:
        return 1 - self.unexplained_ms / self.duration_ms if self.duration_ms else 1.0


def judged(bodies: Iterable[bytes], route: str = "") -> list[JudgedRequest]:
    """Every request whose route begins so, as the job would judge it."""
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in spans_of(bodies, scope=""):
        traces[span.trace_id].append(span)
    found = []
    for trace_id, spans in traces.items():
        entry = next((span for span in spans if span.attributes.get("tailtrace.request") == "true"), None)
        if entry is None or not entry.attributes.get("tailtrace.route", "").startswith(route):
            continue
        for result in judge_spans(spans):
            if result.row["SpanId"] != entry.span_id:
                continue
            by_stage: dict[str, float] = defaultdict(float)
            for part in result.segments:
                by_stage[part.stage] += (part.end_unix_ns - part.start_unix_ns) / 1e6
            unexplained = by_stage.pop("unexplained", 0.0)
            found.append(
                JudgedRequest(trace_id, entry, entry.duration_ns / 1e6, unexplained, dict(by_stage), result.row)
            )
    return found

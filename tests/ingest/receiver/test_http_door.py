"""OTLP/HTTP as a client sees it."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from otlp_samples import (
    CHILD_ID,
    FakePipeline,
    json_request,
    json_span,
    metric_request,
    rpc_status,
    span,
    spans_of,
    trace_request,
    zstd,
)

from tailtrace.errors import Overloaded
from tailtrace.ingest.receiver.counters import Counters
from tailtrace.ingest.receiver.http import HttpDoor
from tailtrace.ingest.receiver.intake import Intake
from tailtrace.ingest.receiver.limits import Limits
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.tokens import Tokens

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json; charset=utf-8"}


class Door:
    """A door before a pipeline that only keeps what it gets."""

    def __init__(self, limits: Limits | None = None, token: str = "") -> None:
        self.pipeline = FakePipeline()
        self.counters = Counters()
        settings = ServerSettings(data=Path("/nonexistent"), token=token)
        self.app = HttpDoor(Intake(self.pipeline, limits or Limits(), self.counters), Tokens(settings))

    def post(
        self, content: Any, headers: dict[str, str], path: str = "/v1/traces", method: str = "POST"
    ) -> httpx.Response:
        return asyncio.run(self.send(content, headers, path, method))

    async def send(
        self, content: Any, headers: dict[str, str], path: str = "/v1/traces", method: str = "POST"
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
            return await client.request(method, path, content=content, headers=headers)

    @property
    def traces(self) -> dict[str, Any]:
        return self.counters.snapshot()["traces"]


def post_scope(media: bytes) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": "/v1/traces", "headers": [(b"content-type", media)]}


def good(count: int = 1) -> bytes:
    now = time.time_ns()
    return trace_request(*(span((i + 1).to_bytes(8), now=now) for i in range(count))).SerializeToString()


def test_protobuf_is_handed_on_as_received() -> None:
    door, body = Door(), good(2)
    answer = door.post(body, PROTOBUF)
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", "application/x-protobuf")
    assert door.pipeline.bodies == [("traces", body, 2)]
    assert door.traces == {
        "received": 2, "accepted": 2, "deferred": 0, "rejected": {}, "mended": {}, "refused": {},
    }  # fmt: skip


def test_json_gets_json() -> None:
    door = Door()
    answer = door.post(json.dumps(json_request(json_span())).encode(), JSON)
    assert (answer.status_code, answer.json(), answer.headers["content-type"]) == (200, {}, "application/json")
    assert spans_of(door.pipeline.bodies[0][1])[0].name == "gateway.request"


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress), ("identity", bytes)])
def test_encodings(encoding: str, pack: Any) -> None:
    door, body = Door(), good()
    assert door.post(pack(body), {**PROTOBUF, "content-encoding": encoding}).status_code == 200
    assert door.pipeline.bodies == [("traces", body, 1)]


def test_partial_success_counts_and_names_the_first() -> None:
    now = time.time_ns()
    bad = [span(CHILD_ID, now=now, trace_id=b"x"), span(now=now, trace_id=b""), span(now=now, span_id=b"")]
    body = trace_request(*(span((i + 1).to_bytes(8), now=now) for i in range(7)), *bad).SerializeToString()
    door = Door()
    answer = ExportTraceServiceResponse.FromString(door.post(body, PROTOBUF).content)
    assert answer.partial_success.rejected_spans == 3
    assert answer.partial_success.error_message.startswith("span eee19b7ec3c1b175")
    assert door.pipeline.bodies[0][2] == 7
    assert (door.traces["received"], door.traces["accepted"]) == (10, 7)
    assert door.traces["rejected"] == {"bad_trace_id": 2, "bad_span_id": 1}


def test_partial_success_in_json_adds_what_the_conversion_and_the_check_rejected() -> None:
    door = Door()
    spans = [json_span(), json_span(traceId="zz"), json_span(startTimeUnixNano="5")]
    answer = door.post(json.dumps(json_request(*spans)).encode(), JSON)
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "2"
    assert door.traces["rejected"] == {"bad_trace_id": 1, "start_too_early": 1}


def test_metrics_and_logs_are_taken() -> None:
    door = Door()
    now = time.time_ns()
    assert door.post(metric_request(now).SerializeToString(), PROTOBUF, "/v1/metrics").content == b""
    records = [{"timeUnixNano": str(now), "body": {"stringValue": "x"}}, {"timeUnixNano": "5"}]
    request = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    answer = door.post(json.dumps(request).encode(), JSON, "/v1/logs")
    assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    assert [(signal, items) for signal, _, items in door.pipeline.bodies] == [("metrics", 3), ("logs", 1)]


@pytest.mark.parametrize(
    ("content", "headers", "code", "words"),
    [
        (b"nonsense", PROTOBUF, 400, "not an OTLP export request"),
        (b"{", JSON, 400, "not JSON"),
        (b"", {"content-type": "text/plain"}, 415, "Content-Type is 'text/plain'"),
        (b"", {}, 415, "Content-Type is ''"),
        (b"", {**PROTOBUF, "content-encoding": "br"}, 415, "Content-Encoding is 'br'"),
        (b"", {**PROTOBUF, "content-encoding": "gzip, gzip"}, 415, "Content-Encoding"),
        (b"plain", {**PROTOBUF, "content-encoding": "gzip"}, 400, "not gzip"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-6], {**PROTOBUF, "content-encoding": "gzip"}, 400, "ends too early"),
        (bytes(2001), PROTOBUF, 413, "2001 bytes, accepted are 2000"),
        (gzip.compress(bytes(4001), mtime=0), {**PROTOBUF, "content-encoding": "gzip"}, 413, "larger than 4000 bytes"),
    ],
)
def test_refusals_say_why_in_the_senders_encoding(
    content: bytes, headers: dict[str, str], code: int, words: str
) -> None:
    door = Door(Limits(body_bytes=2000, inflated_bytes=4000))
    answer = door.post(content, headers)
    assert answer.status_code == code
    if headers.get("content-type") == "application/x-protobuf":
        message = rpc_status(answer.content)[1]
    else:
        message = answer.json()["message"]
    assert words in message
    assert (door.pipeline.bodies, door.traces["refused"]) == ([], {str(code): 1})


def test_a_body_without_a_length_stops_at_the_limit() -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1000
            yield bytes(1000)

    door = Door(Limits(body_bytes=10_000))
    answer = asyncio.run(door.send(pieces(), PROTOBUF))
    assert answer.status_code == 413


def test_too_much_at_once_is_429_and_ends_with_the_requests() -> None:
    door = Door(Limits(in_flight_bytes=500))

    async def scenario() -> tuple[httpx.Response, httpx.Response]:
        waiting = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield good()[:400].ljust(400)
            await waiting.wait()

        first = asyncio.create_task(door.send(slow(), PROTOBUF))
        while door.app._intake._in_flight < 400:
            await asyncio.sleep(0)
        refused = await door.send(good(), PROTOBUF)
        waiting.set()
        await first
        return refused, await door.send(good(), PROTOBUF)

    refused, later = asyncio.run(scenario())
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert later.status_code == 200


def test_an_overloaded_pipeline_is_503_with_retry_after_and_nothing_is_lost_from_the_count() -> None:
    door = Door()
    door.pipeline.error = Overloaded("the journal is full", retry_after_s=7)
    answer = door.post(good(3), PROTOBUF)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert rpc_status(answer.content)[1] == "the journal is full"
    assert (door.traces["received"], door.traces["deferred"], door.traces["accepted"]) == (3, 3, 0)


def test_no_answer_before_it_is_durable() -> None:
    door = Door(Limits(commit_timeout_s=0.05))
    door.pipeline.stuck = True
    answer = door.post(good(), PROTOBUF)
    assert answer.status_code == 503
    assert door.traces["deferred"] == 1


def test_a_slow_body_does_not_wait_for_ever() -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"\x0a"
        await asyncio.Event().wait()

    door = Door(Limits(receive_timeout_s=0.05))
    assert asyncio.run(door.send(never(), PROTOBUF)).status_code == 408


def test_a_failure_of_ours_is_500_without_its_traceback() -> None:
    door = Door()
    door.pipeline.error = RuntimeError("secret path")
    answer = door.post(good(), PROTOBUF)
    assert answer.status_code == 500
    assert b"secret" not in answer.content


@pytest.mark.parametrize(
    ("given", "code"), [({}, 401), ({"authorization": "Bearer no"}, 401), ({"authorization": "Bearer t"}, 200)]
)
def test_the_token(given: dict[str, str], code: int) -> None:
    door = Door(token="t")
    answer = door.post(good(), {**PROTOBUF, **given})
    assert answer.status_code == code
    assert len(door.pipeline.bodies) == (code == 200)
    if code == 401:
        assert answer.headers["www-authenticate"] == "Bearer"


def test_other_methods_and_paths() -> None:
    door = Door()
    got = door.post(b"", {}, method="GET")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert door.post(b"", PROTOBUF, "/api/v2/spans").status_code == 404
    root = door.post(b"", {}, "/", "GET")
    assert (root.status_code, root.json()["paths"]) == (200, ["POST /v1/traces", "POST /v1/metrics", "POST /v1/logs"])


def test_a_client_that_leaves_is_counted_and_not_answered() -> None:
    door = Door()
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/traces",
        "headers": [(b"content-type", b"application/json")],
    }
    asyncio.run(door.app(scope, receive, send))
    assert (sent, door.traces["refused"]) == ([], {"gone": 1})


def test_a_refused_body_that_was_read_is_answered_at_once() -> None:
    door = Door()
    sent: list[Any] = []
    pieces = iter([{"type": "http.request", "body": b"nonsense", "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(pieces)  # a second call would wait for the client to leave

    async def send(message: Any) -> None:
        sent.append(message)

    scope = post_scope(b"application/json")
    asyncio.run(door.app(scope, receive, send))
    assert sent[0]["status"] == 400


def test_a_refused_body_is_read_to_its_end_before_the_answer() -> None:
    door = Door(Limits(body_bytes=1000))
    heard: list[str] = []
    more = (True, True, True, False)
    pieces = iter([{"type": "http.request", "body": bytes(600), "more_body": each} for each in more])

    async def receive() -> dict[str, Any]:
        heard.append("piece")
        return next(pieces)

    async def send(message: Any) -> None:
        heard.append(message["type"])

    scope = post_scope(b"application/x-protobuf")
    asyncio.run(door.app(scope, receive, send))
    assert heard == ["piece"] * 4 + ["http.response.start", "http.response.body"]

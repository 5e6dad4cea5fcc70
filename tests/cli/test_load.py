"""`tailtrace load` against a stand-in for the OTLP door: what is sent, what is counted, when it waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status

Run = Callable[..., Any]
VLLM = sorted((Path(__file__).resolve().parents[1] / "data" / "vllm").glob("*.pb"))
PROTOBUF = {"content-type": "application/x-protobuf"}


def answer(stub: Any, body: bytes = b"", status: int = 200, **headers: str) -> None:
    entry = (status, {**PROTOBUF, **{name.replace("_", "-"): value for name, value in headers.items()}}, body)
    stub.answers.setdefault("/v1/traces", []).append(entry)


def sent(stub: Any) -> list[ExportTraceServiceRequest]:
    return [ExportTraceServiceRequest.FromString(body) for _, _, _, body in stub.asked]


def ends(request: ExportTraceServiceRequest) -> list[int]:
    scopes = [scope for resource in request.resource_spans for scope in resource.scope_spans]
    return [span.end_time_unix_nano for scope in scopes for span in scope.spans]


def test_every_body_is_sent_as_it_is(tailtrace: Run, stub: Any) -> None:
    answer(stub)
    outcome = tailtrace("load", *map(str, VLLM), "--endpoint", stub.url)
    assert (outcome.code, outcome.out, outcome.err) == (0, "98 spans accepted, 0 rejected\n", "")
    assert sorted(body for *_, body in stub.asked) == sorted(path.read_bytes() for path in VLLM)
    assert {headers["content-type"] for _, _, headers, _ in stub.asked} == {"application/x-protobuf"}


def test_rebase_ends_the_recording_now(tailtrace: Run, stub: Any) -> None:
    answer(stub)
    before = time.time_ns()
    assert tailtrace("load", *map(str, VLLM), "--rebase", "--endpoint", stub.url).code == 0
    newest = max(end for request in sent(stub) for end in ends(request))
    assert before <= newest <= time.time_ns()
    recorded = [end for path in VLLM for end in ends(ExportTraceServiceRequest.FromString(path.read_bytes()))]
    moved = [end for request in sent(stub) for end in ends(request)]
    assert sorted(end - max(moved) for end in moved) == sorted(end - max(recorded) for end in recorded)


def test_rejected_spans_are_counted_with_the_reason(tailtrace: Run, stub: Any) -> None:
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = 2
    response.partial_success.error_message = "2 spans have no id"
    answer(stub, response.SerializeToString())
    outcome = tailtrace("load", str(VLLM[0]), "--endpoint", stub.url)
    assert outcome.code == 1
    assert outcome.out == "4 spans accepted, 2 rejected\n"
    assert "2 rejected: 2 spans have no id" in outcome.err


def test_a_refused_body_counts_whole(tailtrace: Run, stub: Any) -> None:
    answer(stub, Status(message="not for me").SerializeToString(), status=400)
    outcome = tailtrace("load", str(VLLM[0]), "--endpoint", stub.url)
    assert outcome.out == "0 spans accepted, 6 rejected\n"
    assert "6 rejected: 400: not for me" in outcome.err


def test_a_busy_server_is_asked_again(tailtrace: Run, stub: Any) -> None:
    answer(stub, status=503, retry_after="0")
    answer(stub)
    assert tailtrace("load", str(VLLM[0]), "--endpoint", stub.url).out == "6 spans accepted, 0 rejected\n"
    assert len(stub.asked) == 2
    assert stub.asked[0][3] == stub.asked[1][3]


@pytest.mark.parametrize(("status", "words"), [(401, "asks for a token"), (404, "OTLP/HTTP door")])
def test_a_wrong_door_is_a_configuration_error(tailtrace: Run, stub: Any, status: int, words: str) -> None:
    answer(stub, status=status)
    outcome = tailtrace("load", str(VLLM[0]), "--endpoint", stub.url)
    assert outcome.code == 2
    assert words in outcome.err


def test_nobody_there(tailtrace: Run) -> None:
    outcome = tailtrace("load", str(VLLM[0]), "--endpoint", "http://127.0.0.1:9")
    assert outcome.code == 1
    assert outcome.err.startswith("tailtrace: no OTLP receiver answers")


def test_a_file_that_is_no_recording(tailtrace: Run, stub: Any, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    assert tailtrace("load", str(tmp_path / "x"), "--endpoint", stub.url).code == 2
    assert stub.asked == []

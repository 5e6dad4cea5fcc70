"""A recorded export of the hooks from a real vLLM, judged as the job would: every moment of it is explained."""

from __future__ import annotations

import gzip
import statistics
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from collected import JudgedRequest, judged, spans_of  # noqa: E402
from harness import quantile  # noqa: E402

BODY = gzip.decompress((ROOT / "tests" / "data" / "vllm_hooks" / "traces.pb.gz").read_bytes())


@pytest.fixture(scope="module")
def requests() -> list[JudgedRequest]:
    return judged([BODY], "/v1/")


def test_all_requests_are_there_with_their_outcome(requests: list[JudgedRequest]) -> None:
    outcomes = [request.row["Outcome"] for request in requests]
    assert (len(requests), outcomes.count("ok"), outcomes.count("cancelled")) == (21, 19, 1)


def test_every_moment_is_explained(requests: list[JudgedRequest]) -> None:
    shares = [request.explained for request in requests]
    assert statistics.median(shares) >= 0.99
    assert quantile(shares, 0.05) >= 0.97


def test_the_stages_of_an_answered_request_are_all_measured(requests: list[JudgedRequest]) -> None:
    always = {
        "net_in", "parse", "admission", "template", "tokenize", "engine_submit", "queue", "prefill", "decode",
        "engine_return", "detokenize", "postprocess",
    }  # fmt: skip
    for request in requests:
        if request.row["Outcome"] == "ok":
            assert always <= request.stages_ms.keys()
            assert sum(request.stages_ms.values()) + request.unexplained_ms == pytest.approx(request.duration_ms)
    assert any("preempted" in request.stages_ms for request in requests)
    assert any("stream_out" in request.stages_ms for request in requests)


def test_samples_and_tokens(requests: list[JudgedRequest]) -> None:
    two = [request.row for request in requests if request.row["N"] == 2]
    assert two
    assert all(row["OutputTokens"] % 2 == 0 and row["InputTokens"] > 0 for row in two)


def test_each_trace_joins_both_processes() -> None:
    roles: dict[str, set[str]] = {}
    for span in spans_of([BODY]):
        roles.setdefault(span.trace_id, set()).add(span.resource["tailtrace.role"])
    joined = [found for found in roles.values() if found == {"api_server", "scheduler"}]
    assert len(joined) == 20


def test_steps_name_the_requests_that_the_traces_name() -> None:
    steps = spans_of([BODY], scope="tailtrace.steps")
    ids = {span.attributes.get("gen_ai.request.id") for span in spans_of([BODY])}
    preempted = {
        name for step in steps if (names := step.attributes.get("tailtrace.preempted")) for name in names.split(",")
    }
    assert len(steps) > 200
    assert preempted
    assert preempted <= ids

"""A real vLLM under `tailtrace run`: connected traces, every stage, aborts, samples, preemptions, steps."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import socket
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from collected import JudgedRequest, collecting, judged, settle, spans_of
from harness import quantile
from vllm_server import Answer, Server, call, load, serving, words

from tailtrace.analytics.trace import Span
from tailtrace.instrumentation.resource import host_id

# One request of the longest kind fits, eight of them do not: some are preempted.
# A file to keep the export in, for tests/data/vllm_hooks: a shorter run then.
CAPTURE = os.environ.get("TAILTRACE_VLLM_CAPTURE", "")
TINY_CACHE = ("--num-gpu-blocks-override", "17", "--no-enable-prefix-caching")


@dataclass
class Run:
    answers: list[Answer]
    requests: list[JudgedRequest]
    spans: list[Span]
    steps: list[Span]


@pytest.fixture(scope="module")
def run(vllm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    work = tmp_path_factory.mktemp("vllm")
    with collecting() as collected:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collected.endpoint}
        prefix = ("tailtrace", "run", "--")
        with serving(vllm, work / "server.log", prefix=prefix, environ=environ, arguments=TINY_CACHE) as server:
            answers = asyncio.run(_traffic(server))
            settle(collected)
        if CAPTURE:
            body = b"".join(collected.bodies)
            for name in (host_id(), socket.gethostname()):
                body = body.replace(name.encode(), b"h" * len(name.encode()))
            Path(CAPTURE).write_bytes(gzip.compress(body, mtime=0))
        yield Run(
            answers, judged(collected.bodies, "/v1/"), spans_of(collected.bodies),
            spans_of(collected.bodies, scope="tailtrace.steps"),
        )  # fmt: skip


async def _traffic(server: Server) -> list[Answer]:
    rng = random.Random(1)
    _, answers = await load(server.port, 12 if CAPTURE else 40, rng, aborts=True)
    long = {"model": "tiny", "max_tokens": 200 if CAPTURE else 400, "ignore_eos": True, "stream": True}
    texts = [words(rng, 60) for _ in range(8)]
    answers += await asyncio.gather(*(call(server.port, "/v1/completions", {**long, "prompt": text}) for text in texts))
    answers.append(await call(server.port, "/v1/chat/completions", {"model": "tiny", "messages": "not a list"}))
    return answers


def test_every_request_is_one_connected_trace_of_both_processes(run: Run) -> None:
    assert len(run.requests) == len(run.answers)
    by_id = {span.span_id: span for span in run.spans}
    for span in run.spans:
        if span.attributes.get("tailtrace.request") != "true":
            assert by_id[span.parent_span_id].trace_id == span.trace_id
    for request in run.requests:
        if request.row["Outcome"] in {"ok", "cancelled"}:
            roles = {one.resource["tailtrace.role"] for one in run.spans if one.trace_id == request.trace_id}
            assert roles == {"api_server", "scheduler"}


def test_all_stages_are_there_and_explain_the_request(run: Run) -> None:
    seen = {stage for request in run.requests for stage in request.stages_ms}
    assert seen >= {
        "net_in", "parse", "admission", "template", "tokenize", "engine_submit", "queue", "prefill", "decode",
        "preempted", "engine_return", "detokenize", "postprocess", "stream_out",
    }  # fmt: skip
    shares = [request.explained for request in run.requests]
    assert statistics.median(shares) >= 0.99
    assert quantile(shares, 0.05) >= 0.97


def test_aborted_and_refused_requests_are_there(run: Run) -> None:
    outcomes = [request.row["Outcome"] for request in run.requests]
    assert outcomes.count("cancelled") == sum(answer.aborted for answer in run.answers) > 0
    assert sum(request.row["Outcome"] not in {"ok", "cancelled"} for request in run.requests) == 1


def test_samples_and_tokens_are_counted(run: Run) -> None:
    ok = [request for request in run.requests if request.row["Outcome"] == "ok"]
    assert any(request.row["N"] == 2 for request in ok)
    assert all(request.row["InputTokens"] > 0 and request.row["OutputTokens"] > 0 for request in ok)


def test_steps_say_what_ran_what_waited_and_who_was_preempted(run: Run) -> None:
    assert len(run.steps) > 200
    keys = {"running", "waiting", "kv_usage", "prefill_tokens", "decode_tokens", "engine_id"}
    assert all(keys <= {key.removeprefix("tailtrace.") for key in step.attributes} for step in run.steps)
    assert max(int(step.attributes["tailtrace.running"]) for step in run.steps) >= 4
    assert max(float(step.attributes["tailtrace.kv_usage"]) for step in run.steps) > 0.8
    lists = [step.attributes["tailtrace.preempted"] for step in run.steps if "tailtrace.preempted" in step.attributes]
    preempted = {name for listed in lists for name in listed.split(",")}
    ids = {span.attributes.get("gen_ai.request.id") for span in run.spans}
    assert preempted
    assert preempted <= ids


def test_conditions_travel_with_every_request(run: Run) -> None:
    for span in run.spans:
        resource = {key.removeprefix("tailtrace."): value for key, value in span.resource.items()}
        found = {name: resource[name] for name in ("engine", "model", "precision", "tp", "max_batch")}
        assert found == {"engine": "vllm", "model": "tiny", "precision": "bfloat16", "tp": "1", "max_batch": "8"}
        assert resource["engine_version"]

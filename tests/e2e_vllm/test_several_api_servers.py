"""Two API servers before one engine core, and structured output: one trace a request, and a stage for the grammar."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from collected import collecting, judged, settle, spans_of
from vllm_server import Answer, call, load, serving, words

SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}


async def _traffic(port: int) -> tuple[list[Answer], str]:
    rng = random.Random(1)
    trace_id = f"{rng.getrandbits(128):032x}"
    _, answers = await load(port, 24, rng)
    body: dict[str, object] = {
        "model": "tiny", "max_tokens": 16, "messages": [{"role": "user", "content": words(rng, 8)}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
    }  # fmt: skip
    answers.append(await call(port, "/v1/chat/completions", body, trace_id=trace_id))
    return answers, trace_id


def test_requests_of_two_api_servers_are_whole_and_a_grammar_is_a_stage(vllm: Path, tmp_path: Path) -> None:
    with collecting() as collected:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collected.endpoint}
        prefix = ("tailtrace", "run", "--")
        with serving(
            vllm, tmp_path / "server.log", prefix=prefix, environ=environ, arguments=("--api-server-count", "2")
        ) as server:
            answers, structured = asyncio.run(_traffic(server.port))
            settle(collected)
        spans, requests = spans_of(collected.bodies), judged(collected.bodies, "/v1/")
    assert [answer.status for answer in answers] == [200] * len(answers)
    assert len(requests) == len(answers)
    for request in requests:
        own = [span for span in spans if span.trace_id == request.trace_id]
        assert {span.resource["tailtrace.role"] for span in own} == {"api_server", "scheduler"}
        assert {"queue", "prefill", "decode", "engine_return"} <= request.stages_ms.keys()
    servers = {
        span.resource["service.instance.id"] for span in spans if span.resource["tailtrace.role"] == "api_server"
    }
    assert len(servers) == 2
    assert [request.trace_id for request in requests if "grammar" in request.stages_ms] == [structured]

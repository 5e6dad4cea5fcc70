"""The example service with real transformers on the CPU under `tailtrace run`, without a line about tracing in it."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from collected import JudgedRequest, collecting, judged, settle, spans_of
from harness import quantile, wait_until
from vllm_server import call, free_port

from tailtrace.analytics.trace import Span

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PATHS = ("/generate", "/complete")
EACH = 30
TOKENS = 64


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json", timeout=2):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def served(vllm: Path) -> Iterator[tuple[list[JudgedRequest], list[Span]]]:
    """What two clients at once got: streamed answers, and whole ones."""
    port = free_port()
    with collecting() as collected:
        binaries = vllm / "v" / "bin"
        environ = {
            **os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "MODEL": str(vllm / "model"),
            "HF_HUB_OFFLINE": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": collected.endpoint,
        }  # fmt: skip
        command = [
            "tailtrace", "run", "--service", "texts", "--", "uvicorn", "--app-dir", str(EXAMPLES),
            "transformers_service:app", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning",
        ]  # fmt: skip
        server = subprocess.Popen([str(binaries / command[0]), *command[1:]], env=environ)

        async def client(path: str) -> list[int]:
            body: dict[str, object] = {"text": "def self return value " * 10, "max_new_tokens": TOKENS}
            return [(await call(port, path, body)).status for _ in range(EACH)]

        async def clients() -> list[list[int]]:
            return await asyncio.gather(*map(client, PATHS))

        try:
            wait_until(lambda: _answers(port), 120, "the service answering", 0.3)
            assert asyncio.run(clients()) == [[200] * EACH] * len(PATHS)
            settle(collected)
        finally:
            server.terminate()
            server.wait(20)
        yield [one for path in PATHS for one in judged(collected.bodies, path)], spans_of(collected.bodies)


def test_every_request_is_one_connected_trace_that_its_stages_explain(
    served: tuple[list[JudgedRequest], list[Span]],
) -> None:
    requests, spans = served
    assert len(requests) == EACH * len(PATHS)
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        if span.attributes.get("tailtrace.request") != "true":
            assert by_id[span.parent_span_id].trace_id == span.trace_id
    for request in requests:
        assert request.stages_ms.keys() >= {"net_in", "tokenize", "prefill", "decode"}
        assert request.row["Outcome"] == "ok"
        assert 0 < request.row["OutputTokens"] <= TOKENS
        assert request.row["InputTokens"] > 40
        assert (request.row["TtftNs"] is not None) == (request.row["Route"] == "/generate")
    shares = [request.explained for request in requests]
    assert statistics.median(shares) >= 0.99
    assert quantile(shares, 0.05) >= 0.97

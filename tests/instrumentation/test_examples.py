"""The examples in docs/ run, and give the stages they say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asgi_calls import call
from receiver import receiver

from tailtrace.instrumentation import shutdown
from tailtrace.instrumentation.testing import captured

pytestmark = pytest.mark.anyio
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


async def test_the_gateway_shows_every_stage() -> None:
    spec = importlib.util.spec_from_file_location("example_gateway", EXAMPLES / "gateway.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        with captured() as spans:
            await call(module.app)
            for worker in module.workers:
                worker.cancel()
            found = {span.name: span for span in spans()}
    finally:
        shutdown(0.1)
    assert found.keys() == {
        "POST /v1/chat/completions", "auth", "tokenize", "queue", "prefill", "decode", "net_in",
    }  # fmt: skip
    request = found["POST /v1/chat/completions"]
    assert request.attributes["gen_ai.usage.output_tokens"] == 23
    assert request.attributes["tailtrace.ttft_ns"] > 10_000_000


def test_the_worker_sends_its_requests() -> None:
    with receiver() as sink:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "worker.py")],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.endpoint},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        names = [name for _, _, name in sink.spans()]
    assert done.stdout.strip() == "sent"
    assert {name: names.count(name) for name in set(names)} == {
        "generate": 10,
        "queue": 10,
        "forward": 10,
        "decode": 10,
    }

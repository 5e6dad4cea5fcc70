"""A plain FastAPI service with a queue and a pool of threads: each request is one trace, and its stages explain it."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
from collected import collecting, judged, settle, spans_of
from vllm_server import free_port

SERVICE = """
import asyncio, json, time
from concurrent.futures import ThreadPoolExecutor
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse
from tailtrace.instrumentation import (
    instrument, joined, stage, wrap_executor, wrap_gateway, wrap_scheduler, wrap_tokenizer,
)

instrument("queued", resource={"model": "toy"})

class Tokenizer:
    def encode(self, text):
        time.sleep(0.005)
        return list(text)

tokenizer = wrap_tokenizer(Tokenizer())
pool = wrap_executor(ThreadPoolExecutor(4))
waiting = wrap_scheduler(asyncio.Queue())
service = FastAPI()
workers = []

def generate(put, tokens):
    with stage("prefill"):
        time.sleep(0.08)
    with stage("decode"):
        for number in range(20):
            time.sleep(0.01)
            put(f"token {number}")

async def worker():
    loop = asyncio.get_running_loop()
    while True:
        item = await waiting.get()
        tokens, answer = item
        put = lambda text: loop.call_soon_threadsafe(answer.put_nowait, text)
        with joined(waiting.scope_of(item)):
            await loop.run_in_executor(pool, generate, put, tokens)
        await answer.put(None)

async def key():
    await asyncio.sleep(0.005)

@service.post("/v1/completions", dependencies=[Depends(key)])
async def complete():
    if not workers:
        workers.extend(asyncio.create_task(worker()) for _ in range(2))
    answer = asyncio.Queue()
    tokens = await asyncio.get_running_loop().run_in_executor(pool, tokenizer.encode, "say something")
    await waiting.put((tokens, answer))
    async def frames():
        while (text := await answer.get()) is not None:
            yield f"data: {json.dumps({'choices': [{'index': 0, 'text': text}]})}\\n\\n"
        yield "data: [DONE]\\n\\n"
    return StreamingResponse(frames(), media_type="text/event-stream")

app = wrap_gateway(service)
"""
REQUESTS, CLIENTS = 20, 4


async def _send(port: int) -> None:
    async def client(http: httpx.AsyncClient) -> None:
        for _ in range(REQUESTS // CLIENTS):
            answer = await http.post(f"http://127.0.0.1:{port}/v1/completions", json={"prompt": "x"})
            assert answer.text.count("data:") == 21

    async with httpx.AsyncClient(timeout=60) as http:
        await asyncio.gather(*(client(http) for _ in range(CLIENTS)))


def test_every_request_is_one_connected_trace_that_its_stages_explain(tmp_path: Path) -> None:
    (tmp_path / "queued_service.py").write_text(SERVICE)
    port = free_port()
    with collecting() as collected:
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "queued_service:app", "--port", str(port), "--log-level", "error"],
            cwd=tmp_path, env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collected.endpoint},
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    asyncio.run(_send(port))
                    break
                except httpx.ConnectError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            settle(collected)
        finally:
            server.terminate()
            server.wait(20)
        requests, spans = judged(collected.bodies, "/v1/"), spans_of(collected.bodies)
    assert len(requests) == REQUESTS
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        if span.attributes.get("tailtrace.request") != "true":
            assert by_id[span.parent_span_id].trace_id == span.trace_id
    names = Counter(span.name for span in spans)
    for stage in ("net_in", "auth", "tokenize", "queue", "prefill", "decode"):
        assert names[stage] == REQUESTS, names
    # Two workers for four clients: some waited for most of another's time.
    assert max(request.stages_ms["queue"] for request in requests) > 100
    # On a quiet machine 0.998; what is left is the loop's own work, which grows where others have the cores.
    assert statistics.median(request.explained for request in requests) >= 0.97

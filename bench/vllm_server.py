"""A real vLLM server for benchmarks, and a load on it that costs little beside it.

`--vllm DIR` is a folder with a virtual environment `v` (vLLM and this project in it) and a model `model` with a chat
template: docs/vllm.md says how to make one that needs no GPU.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_S = 600.0


@dataclass(frozen=True)
class Server:
    port: int
    pid: int
    log: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(
    vllm: Path,
    log: Path,
    *,
    prefix: Sequence[str] = (),
    arguments: Sequence[str] = (),
    environ: dict[str, str] | None = None,
) -> Iterator[Server]:
    """A server that answers; `prefix` goes before its command (`tailtrace run --`). Ended with all its processes."""
    port = free_port()
    binaries = vllm / "v" / "bin"
    env = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        **(environ or {}),
    }
    command = [
        *prefix, "vllm", "serve", "model", "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager",
        "--disable-uvicorn-access-log", *arguments,
    ]  # fmt: skip
    program = str(binaries / command[0])
    # `timeout` and CI end a benchmark so: its servers must end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, *command[1:]], cwd=vllm, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_ready(process, port, log)
        yield Server(port, process.pid, log)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise TimeoutError(f"vLLM did not answer within {READY_S:.0f} s: {log}")


@dataclass(frozen=True)
class Answer:
    """What one client saw; milliseconds, ttft where the answer was streamed."""

    duration_ms: float
    ttft_ms: float | None
    status: int
    aborted: bool = False


async def call(
    port: int,
    path: str,
    body: dict[str, object],
    *,
    abort_after_s: float = 0.0,
    read_after_s: float = 0.0,
    trace_id: str = "",
    small: bool = False,
) -> Answer:
    """One request over a connection of its own. `small`: little fits into the connection; `read_after_s`: a slow
    reader, that after the answer's first bytes reads nothing for so long. `trace_id` is the caller's."""
    payload = json.dumps(body).encode()
    reader, writer = await _connect(port, small)
    start = time.perf_counter()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
    if trace_id:
        head += f"traceparent: 00-{trace_id}-{trace_id[:16]}-01\r\n"
    writer.write(f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)
    status, ttft = 0, None
    aborted = False
    try:
        async with asyncio.timeout(abort_after_s or 120):
            status = int((await reader.readline()).split()[1])
            if read_after_s:
                await asyncio.sleep(read_after_s)
            while chunk := await reader.read(65536):
                if ttft is None and (b'"text":"' in chunk or b'"content":"' in chunk):
                    ttft = (time.perf_counter() - start) * 1e3
    except TimeoutError:
        aborted = True
    finally:
        writer.close()
    return Answer((time.perf_counter() - start) * 1e3, ttft if body.get("stream") else None, status, aborted)


async def _connect(port: int, small: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not small:
        return await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock, limit=1024)


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choice(("def", "self", "return", "import", "class", "value", "error")) for _ in range(count))


def mixed(rng: random.Random, index: int) -> tuple[str, dict[str, object]]:
    """The index-th request of a mixed load: chat and completions, short and long prompts, n=2, streaming and not."""
    long = index % 7 == 3
    text = words(rng, rng.randint(300, 700) if long else rng.randint(3, 60))
    body: dict[str, object] = {
        "model": "tiny", "max_tokens": rng.choice((4, 16, 32, 64)), "ignore_eos": True, "stream": index % 4 != 1,
        "temperature": 0.5, "seed": index,
    }  # fmt: skip
    if index % 11 == 5:
        body["n"] = 2
    if index % 2:
        return "/v1/completions", {**body, "prompt": text}
    return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}]}


async def load(
    port: int, requests: int, rng: random.Random, *, concurrency: int = 4, aborts: bool = False, first: int = 0
) -> tuple[float, list[Answer]]:
    """Seconds and answers of a closed loop of `concurrency` clients over `mixed`."""
    todo = iter([(index, mixed(rng, index)) for index in range(first, first + requests)])
    answers: list[Answer] = []

    async def client() -> None:
        for index, (path, body) in todo:
            cut = 0.15 if aborts and index % 10 == 9 else 0.0
            if cut:
                body["max_tokens"] = 800
            answers.append(await call(port, path, body, abort_after_s=cut))

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    return time.perf_counter() - start, answers

"""What recording a request costs, beside OpenTelemetry's SDK, ddtrace and logfire: CPU, in-line time, time a chunk.

One request = 9 spans with 3 attributes and 200 chunks; everything counts: marks, statistics, encoding, sending. Peers
are installed into --work DIR; without them (as in --quick) their figures are null and the reason is printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import arguments, report

HERE = Path(__file__).parent
PEERS = (
    "opentelemetry-sdk>=1.30", "opentelemetry-exporter-otlp-proto-http>=1.30",
    "opentelemetry-exporter-otlp-proto-grpc>=1.30", "ddtrace>=3", "logfire>=3",
)  # fmt: skip
PEER_LANES = ("otel_http", "otel_grpc", "ddtrace", "logfire")

SINK = """
import socketserver, sys
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            size, line = 0, self.rfile.readline()
            if not line:
                return
            while (line := self.rfile.readline().strip()):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    size = int(value)
            self.rfile.read(size)
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\n{}")
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


GRPC_SINK = """
import grpc
from concurrent.futures import ThreadPoolExecutor
class Everything(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda body, context: b"")
server = grpc.server(ThreadPoolExecutor(4), handlers=[Everything()], options=[("grpc.max_receive_message_length", -1)])
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
"""


@contextmanager
def sink(code: str = SINK) -> Iterator[int]:
    """A receiver in another process that takes everything and does nothing; gives its port."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def peers(work: Path | None, quick: bool) -> str | None:
    """The interpreter that has the peers, made when --work says where; None with a printed reason otherwise."""
    if work is None:
        print("peers: skipped, give --work DIR to install and measure them")
        return None
    python = work / "overhead-peers" / "bin" / "python"
    if python.exists():
        return str(python)
    if quick:
        print(f"peers: skipped, not installed in {work} (a run without --quick installs them)")
        return None
    venv.create(work / "overhead-peers", with_pip=True)
    done = subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS], check=False)
    if done.returncode:
        print("peers: skipped, they could not be installed")
        return None
    return str(python)


def lane(python: str, name: str, port: int, requests: int, pause_us: int = 0) -> dict[str, float] | None:
    command = [python, str(HERE / "overhead_lanes.py"), name, str(port), str(requests), str(pause_us)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "DD_"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    if done.returncode:
        print(f"{name}: failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
        return None
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def chunk_ns(rounds: int, chunks: int = 2000) -> float:
    """Time that wrap_gateway adds to one `send` of a stream: median over rounds of interleaved pairs."""
    from tailtrace.instrumentation import wrap_gateway
    from tailtrace.instrumentation.testing import captured

    body = b'data: {"choices":[{"index":0,"delta":{"content":"token"},"finish_reason":null}]}\n\n'
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
    message = {"type": "http.response.body", "body": body, "more_body": True}
    last = {"type": "http.response.body", "body": b"", "more_body": False}

    class Cycle:
        """As uvicorn's: `send` is a bound method whose object knows whether writing is paused."""

        class flow:  # noqa: N801
            write_paused = False

        disconnected = False

        async def send(self, message: Any) -> None:
            pass

    took = [0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start)
        await send(message)
        begin = time.perf_counter_ns()
        for _ in range(chunks):
            await send(message)
        took[0] = time.perf_counter_ns() - begin
        await send(last)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def measure() -> float:
        wrapped = wrap_gateway(app)
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        added = []
        for _ in range(rounds):
            send = Cycle().send
            await app(dict(scope), receive, send)
            plain = took[0]
            await wrapped(dict(scope), receive, send)
            added.append((took[0] - plain) / chunks)
        return statistics.median(added)

    with captured():
        return asyncio.run(measure())


def import_ms(rounds: int) -> float:
    """Import of our client in a process that has opentelemetry.sdk.trace already, from bytecode as after an install."""
    code = (
        "import opentelemetry.sdk.trace, time; t=time.perf_counter(); import tailtrace.instrumentation;"
        "print((time.perf_counter()-t)*1000)"
    )
    with tempfile.TemporaryDirectory() as bytecode:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {**kept, "PYTHONPYCACHEPREFIX": bytecode}

        def once() -> float:
            run = subprocess.run(
                [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
            )
            return float(run.stdout)

        once()
        return statistics.median(once() for _ in range(rounds))


def main() -> None:
    parser = arguments(__doc__ or "")
    args = parser.parse_args()
    requests, rounds = (500, 1) if args.quick else (4000, 7)
    python = peers(args.work, args.quick)
    results: dict[str, list[dict[str, float]]] = {}
    with sink() as port, sink(GRPC_SINK) as grpc_port:
        for _ in range(rounds):
            for name in ("floor", "tailtrace", *(PEER_LANES if python else ())):
                interpreter = python if python and name in PEER_LANES else sys.executable
                result = lane(interpreter, name, grpc_port if name == "otel_grpc" else port, requests)
                if result is not None:
                    results.setdefault(name, []).append(result)
        print(f"{'back to back':14s} {'CPU us/request':>15s} {'of threads':>11s} {'in-line p50':>12s} {'p99 us':>9s}")
        for name, runs in results.items():
            row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            cpu, threads, inline, p99 = (row[key] for key in ("cpu_us", "threads_us", "inline_us", "inline_p99_us"))
            print(f"{name:14s} {cpu:15.1f} {threads:11.1f} {inline:12.1f} {p99:9.1f}")
        paced = lane(sys.executable, "tailtrace", port, requests // 10, 5000)
        idle = lane(sys.executable, "floor", port, requests // 10, 5000)
        if paced and idle:
            print(
                f"paced, 200 requests/s: {paced['cpu_us']:.1f} us of CPU a request (floor {idle['cpu_us']:.1f}), "
                f"in-line p50 {paced['inline_us']:.1f} (floor {idle['inline_us']:.1f})"
            )
    print(f"import beyond opentelemetry-sdk's own: {import_ms(1 if args.quick else 5):.1f} ms")

    def ratio(key: str, peer: str) -> float | None:
        pairs = list(zip(results.get("tailtrace", []), results.get(peer, []), strict=False))
        return statistics.median(ours[key] / theirs[key] for ours, theirs in pairs) if pairs else None

    report(
        "overhead",
        args.seed,
        {
            "cpu_us": statistics.median(run["cpu_us"] for run in results["tailtrace"]),
            "x_otel_http": ratio("cpu_us", "otel_http"),
            "x_otel_grpc": ratio("cpu_us", "otel_grpc"),
            "x_ddtrace": ratio("cpu_us", "ddtrace"),
            "x_logfire": ratio("cpu_us", "logfire"),
            "inline_x_otel": ratio("inline_us", "otel_http"),
            "chunk_ns": chunk_ns(20 if args.quick else 200),
        },
    )


if __name__ == "__main__":
    main()

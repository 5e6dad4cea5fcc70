"""What wrap_gateway costs a streaming endpoint: requests/s of 200-chunk FastAPI streams under uvicorn.

The stream yields its 200 chunks at once, without a turn of the event loop between them: the app itself does next to
nothing, which is the hardest case for what is added; `kept` is that one. Beside it, printed only, the same with one
turn of the loop a chunk, as where each token comes from an engine. opentelemetry-instrumentation-asgi stands beside,
from --work DIR; without it (as in --quick) its line is left out and the reason is printed.

What is measured is the median, over all pairs, of one server's rate to that of the other a moment before or after:

- Turns are short, some 64 requests, and their order is reversed from round to round: the speed of a shared machine
  wanders by half within minutes and hardly within a tenth of a second.
- A server is stopped (SIGSTOP) outside its turns. What it has yet to encode and send is charged to itself, in its next
  turn, and to nobody else. It sends every so often by the clock on the wall, which runs on meanwhile: so the interval
  is as many times longer as there are servers that take turns, and it sends as often in time of its own as ever.
- A server has one core to itself, with all its threads; load generator and receiver are processes on another, which is
  then two thirds idle: what is compared is what a core can serve. With one core only all share it.
- All servers are started anew several times, since where a process happens to have its memory makes two per cent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import venv
from contextlib import ExitStack
from pathlib import Path

import psutil
from harness import arguments, cpu_seconds, report, workspace
from overhead import sink

PEERS = (
    "uvicorn[standard]>=0.34", "opentelemetry-sdk>=1.30", "opentelemetry-exporter-otlp-proto-http>=1.30",
    "opentelemetry-instrumentation-asgi", "fastapi>=0.115",
)  # fmt: skip

STREAM, TURNS = "/stream", "/turns"
CONNECTIONS = 8
REQUESTS = 64
# The peer is many times slower: a tenth of the requests tells as much.
OTEL_REQUESTS = 8
INTERVAL_S = 0.5

SERVICE = """
import asyncio, os
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"token"},"finish_reason":null}]}\\n\\n'
app = FastAPI()
@app.get("/stream")
async def stream():
    async def chunks():
        for _ in range(200):
            yield CHUNK
    return StreamingResponse(chunks(), media_type="text/event-stream")
@app.get("/turns")
async def turns():
    async def chunks():
        for _ in range(200):
            await asyncio.sleep(0)
            yield CHUNK
    return StreamingResponse(chunks(), media_type="text/event-stream")
kind = os.environ["BENCH_KIND"]
if kind == "tailtrace":
    from tailtrace.instrumentation import instrument, wrap_gateway
    instrument("bench")
    app = wrap_gateway(app)
elif kind == "otel":
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    app = OpenTelemetryMiddleware(app)
"""


class Server:
    """One uvicorn process that serves `kind`, stopped outside its turns; its connections are kept."""

    def __init__(
        self, python: str, kind: str, folder: Path, sink_port: int, interval_s: float, cores: set[int]
    ) -> None:
        self.kind = kind
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("OTEL_")},
            "BENCH_KIND": kind,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink_port}",
            "TAILTRACE_INTERVAL_S": str(interval_s),
        }
        command = [
            python, "-m", "uvicorn", "bench_service:app", "--port", str(self.port), "--log-level", "error",
            "--timeout-keep-alive", "600",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, cwd=folder, env=environment)
        psutil.Process(self.process.pid).cpu_affinity(sorted(cores))
        self._connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ready(self) -> None:
        """Connected, warm, and stopped."""
        deadline = time.monotonic() + 30
        while len(self._connections) < CONNECTIONS:
            try:
                self._connections.append(await asyncio.open_connection("127.0.0.1", self.port))
            except OSError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.kind} did not start") from None
                await asyncio.sleep(0.05)
        for path in (STREAM, TURNS):
            await self._load(4 * OTEL_REQUESTS if self.kind == "otel" else 3 * REQUESTS, path)
        self.process.send_signal(signal.SIGSTOP)

    async def turn(self, path: str) -> float:
        """Seconds a request of one turn."""
        requests = OTEL_REQUESTS if self.kind == "otel" else REQUESTS
        self.process.send_signal(signal.SIGCONT)
        took_s = await self._load(requests, path)
        self.process.send_signal(signal.SIGSTOP)
        return took_s / requests

    async def _load(self, requests: int, path: str) -> float:
        left = requests
        request = f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode()

        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                writer.write(request)
                await reader.readuntil(b"\r\n0\r\n\r\n")

        began = time.perf_counter()
        await asyncio.gather(*(client(reader, writer) for reader, writer in self._connections))
        return time.perf_counter() - began

    def disconnect(self) -> None:
        for _, writer in self._connections:
            writer.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Figures:
    """Seconds a request of each turn, by path and kind, and CPU seconds and requests of all turns by kind."""

    def __init__(self, kinds: list[str]) -> None:
        self.took_s: dict[str, dict[str, list[float]]] = {
            path: {kind: [] for kind in kinds} for path in (STREAM, TURNS)
        }
        self.cpu_us: dict[str, list[float]] = {kind: [] for kind in kinds}

    def kept(self, path: str, kind: str) -> list[float]:
        """The rate of `kind` as a share of the uninstrumented one's, for each pair of turns."""
        took_s = self.took_s[path]
        return [plain / own for plain, own in zip(took_s["plain"], took_s[kind], strict=True)]


async def measure(servers: list[Server], rounds: int, figures: Figures) -> None:
    """`rounds` turns of all servers on each path, one after the other."""
    for server in servers:
        await server.ready()
    for path, count in ((STREAM, rounds), (TURNS, rounds // 2)):
        before = {server.kind: cpu_seconds(server.process.pid) for server in servers}
        for index in range(count):
            for server in reversed(servers) if index % 2 else servers:
                figures.took_s[path][server.kind].append(await server.turn(path))
        if path == STREAM:
            for server in servers:
                requests = count * (OTEL_REQUESTS if server.kind == "otel" else REQUESTS)
                used_s = cpu_seconds(server.process.pid) - before[server.kind]
                figures.cpu_us[server.kind].append(used_s / requests * 1e6)
    for server in servers:
        server.disconnect()


def start(kinds: dict[str, str], folder: Path, sink_port: int, core: int, stack: ExitStack) -> list[Server]:
    """One server a kind, on that core."""
    servers = []
    for kind, python in kinds.items():
        server = Server(python, kind, folder, sink_port, INTERVAL_S * len(kinds), {core})
        stack.callback(server.stop)
        servers.append(server)
    return servers


def peer(folder: Path, install: bool) -> str | None:
    """The Python that has opentelemetry-instrumentation-asgi; None, and why, where there is none."""
    python = folder / "asgi-peers" / "bin" / "python"
    if install and not python.exists():
        venv.create(folder / "asgi-peers", with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS], check=False)
    if python.exists():
        return str(python)
    print("opentelemetry-instrumentation-asgi: skipped, give --work DIR (without --quick) to install it")
    return None


def main() -> None:
    args = arguments(__doc__ or "").parse_args()
    starts, rounds = (1, 12) if args.quick else (8, 24)
    cores = sorted(os.sched_getaffinity(0))
    with workspace(args.work) as folder, sink() as sink_port:
        (folder / "bench_service.py").write_text(SERVICE)
        kinds = {"plain": sys.executable, "tailtrace": sys.executable}
        python = peer(folder, args.work is not None and not args.quick)
        if python is not None:
            kinds["otel"] = python
        # The generator and the receiver, which is a child, leave the first core to the server that has its turn.
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            process.cpu_affinity(cores[1:] or cores)
        figures = Figures(list(kinds))
        for index in range(starts):
            with ExitStack() as stack:
                servers = start(kinds, folder, sink_port, cores[0], stack)
                asyncio.run(measure(servers, rounds, figures))
            medians = {kind: statistics.median(figures.kept(STREAM, kind)[-rounds:]) for kind in kinds}
            print(f"start {index + 1}: " + ", ".join(f"{kind} {share:.3f}" for kind, share in medians.items()))
    psutil.Process().cpu_affinity(cores)
    for path, took_s in figures.took_s.items():
        print(f"\n{path}, {len(took_s['plain'])} pairs: requests/s, share of plain (quartiles)")
        for kind, values in took_s.items():
            low, middle, high = statistics.quantiles(figures.kept(path, kind), n=4)
            line = f"{kind:10s} {1 / statistics.median(values):8.0f}  {middle:5.3f} ({low:.3f} to {high:.3f})"
            if path == STREAM:
                line += f"  {statistics.median(figures.cpu_us[kind]):6.0f} us of CPU a request, all threads"
            print(line)
    report("asgi", args.seed, {"kept": statistics.median(figures.kept(STREAM, "tailtrace"))})


if __name__ == "__main__":
    main()

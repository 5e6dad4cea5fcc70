"""What wrap_gateway costs a streaming endpoint: requests/s of 200-chunk FastAPI streams under uvicorn.

Interleaved pairs of servers, each given time to send what it has recorded before the next begins; load generator and
receiver are processes of their own on the same cores, so what they use is not the server's. The stream yields its 200
chunks at once, without a turn of the event loop between them: the app itself does next to nothing, which is the
hardest case for what is added; `kept` is that one. Beside it, printed only, the same with one turn of the loop a chunk,
as where each token comes from an engine. opentelemetry-instrumentation-asgi stands beside, from --work DIR; without it
(as in --quick) its line is left out and the reason is printed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

from harness import arguments, cpu_seconds, report, workspace
from overhead import sink

PEERS = (
    "uvicorn[standard]>=0.34", "opentelemetry-sdk>=1.30", "opentelemetry-exporter-otlp-proto-http>=1.30",
    "opentelemetry-instrumentation-asgi", "fastapi>=0.115",
)  # fmt: skip

# What a kind still sends after its last request would be taken from the next one's share of the cores.
SETTLE_S = {"plain": 0.0, "tailtrace": 0.7, "otel": 5.5}

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
    """One uvicorn process that serves `kind`."""

    def __init__(self, python: str, kind: str, folder: Path, sink_port: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("OTEL_")},
            "BENCH_KIND": kind,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink_port}",
        }
        command = [python, "-m", "uvicorn", "bench_service:app", "--port", str(self.port), "--log-level", "error"]
        self.process = subprocess.Popen(command, cwd=folder, env=environment)
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    self.stop()
                    raise TimeoutError(f"{kind} did not start") from None
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


async def load(port: int, requests: int, connections: int = 8, path: str = "/stream") -> float:
    """Requests/s of whole streams over kept connections."""
    left = requests

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0:
            left -= 1
            writer.write(f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode())
            await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    return requests / (time.perf_counter() - began)


def main() -> None:
    args = arguments(__doc__ or "").parse_args()
    pairs, requests = (2, 200) if args.quick else (10, 2000)
    with workspace(args.work) as folder, sink() as sink_port:
        (folder / "bench_service.py").write_text(SERVICE)
        kinds = {"plain": sys.executable, "tailtrace": sys.executable}
        peer = folder / "asgi-peers" / "bin" / "python"
        if args.work is not None and not args.quick and not peer.exists():
            venv.create(folder / "asgi-peers", with_pip=True)
            subprocess.run([str(peer), "-m", "pip", "install", "-q", *PEERS], check=False)
        if peer.exists():
            kinds["otel"] = str(peer)
        else:
            print("opentelemetry-instrumentation-asgi: skipped, give --work DIR (without --quick) to install it")
        servers = {kind: Server(python, kind, folder, sink_port) for kind, python in kinds.items()}
        rates: dict[str, list[float]] = {kind: [] for kind in servers}
        cpu_us: dict[str, list[float]] = {kind: [] for kind in servers}
        try:
            for kind, server in servers.items():
                asyncio.run(load(server.port, requests // 4))
                print(f"{kind}: warm")
            for pair in range(pairs):
                for kind in sorted(servers, reverse=bool(pair % 2)):
                    # The peer is many times slower: a tenth of the requests tells as much.
                    count = requests // 10 if kind == "otel" else requests
                    before = cpu_seconds(servers[kind].process.pid)
                    rates[kind].append(asyncio.run(load(servers[kind].port, count)))
                    time.sleep(SETTLE_S[kind])
                    cpu_us[kind].append((cpu_seconds(servers[kind].process.pid) - before) / count * 1e6)
            turns = []
            for pair in range(pairs):
                rate = {}
                for kind in sorted(("plain", "tailtrace"), reverse=bool(pair % 2)):
                    rate[kind] = asyncio.run(load(servers[kind].port, requests // 5, path="/turns"))
                    time.sleep(SETTLE_S[kind])
                turns.append(rate["tailtrace"] / rate["plain"])
        finally:
            for server in servers.values():
                server.stop()
    print(f"with a turn of the loop a chunk: {statistics.median(turns):.3f} of plain")
    for kind, values in rates.items():
        share = statistics.median(a / b for a, b in zip(values, rates["plain"], strict=True))
        print(
            f"{kind:10s} {statistics.median(values):8.0f} requests/s  {share:5.2f} of plain  "
            f"{statistics.median(cpu_us[kind]):6.0f} us of CPU a request, all threads"
        )
    kept = statistics.median(a / b for a, b in zip(rates["tailtrace"], rates["plain"], strict=True))
    report("asgi", args.seed, {"kept": kept})


if __name__ == "__main__":
    main()

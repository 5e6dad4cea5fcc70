"""What `tailtrace sample` costs for 8 GPUs at the fast tier, and whether an instrumented app beside it notices.

The GPUs are the NVML stub, which answers at once: this is the sampler's own cost, not the driver's. CPU is user and
system time of the process, its start left out. The app is an ASGI app under `wrap_gateway` with its loop watched, asked
in the same process; "alone" is the same app while the sampler is stopped (SIGSTOP), in turn. `..._pcie_call` is with
every GPU's PCIe traffic read by the call that blocks for 20 ms in each direction: the sampler's CPU, the mean time
between two of its fast ticks (asked: 0.25 s), and the app beside it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness import Figure, arguments, cpu_seconds, quantile, report, workspace

from tailtrace.instrumentation import instrument, shutdown, wrap_gateway

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from nvml_stub import build

_PROBE_S = 0.005
_CHUNKS = 50
_SCOPE = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
_AMPERE_WITHOUT_BYTE_COUNTERS = "arch 7\nfield.197.err 3\nfield.198.err 3\n"


def _receive(pipe: Any) -> None:
    """Takes every body, keeps the fast tick's interval that the sampler tells, in a process of its own."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            if b"tailtrace.sampler.interval" in body:
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for metric in resource.scope_metrics[0].metrics:
                        if metric.name == "tailtrace.sampler.interval":
                            pipe.send(metric.gauge.data_points[-1].as_double)

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_port)
    server.serve_forever()


@contextmanager
def receiver() -> Iterator[tuple[str, Any]]:
    """A receiver's address, and the pipe that tells the intervals."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_receive, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}", ours
    finally:
        process.kill()
        process.join()


@contextmanager
def sampling(library: Path, endpoint: str, state: str = "") -> Iterator[int]:
    """A running sampler's pid."""
    file = library.parent / "state"
    file.write_text(state)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "NVML_STUB_STATE": str(file)}
    command = [
        sys.executable, "-m", "tailtrace", "sample", "--endpoint", endpoint, "--place", f"bench-{os.getpid()}",
        "--match", "", "--pid", str(os.getpid()),
    ]  # fmt: skip
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def cpu_pct(pid: int, seconds: float, settle_s: float = 4.0) -> float:
    """CPU of a running sampler in percent of one core, its start left out."""
    time.sleep(settle_s)
    used, started = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(pid) - used) / (time.monotonic() - started)


def sampler_cpu_pct(work: Path, seconds: float) -> float:
    """CPU of the sampler for 8 GPUs on the stub, in percent of one core."""
    with receiver() as (endpoint, _), sampling(build(work), endpoint) as pid:
        return cpu_pct(pid, seconds)


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(_CHUNKS):
        await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class App:
    """An instrumented app on a loop of its own, which answers a request every few milliseconds while it is measured."""

    def __init__(self, endpoint: str) -> None:
        instrument("bench-app", endpoint=endpoint)
        self._app = wrap_gateway(_hello)
        self._runner = asyncio.Runner()

    def measure(self, seconds: float) -> tuple[float, float]:
        """99th percentile of how late the loop runs a due callback, and median time of a request, in milliseconds."""
        lags, took = self._runner.run(self._serve(seconds))
        return 1000 * quantile(lags, 0.99), 1000 * statistics.median(took)

    def close(self) -> None:
        self._runner.close()
        shutdown(2.0)

    async def _serve(self, seconds: float) -> tuple[list[float], list[float]]:
        loop = asyncio.get_running_loop()
        lags: list[float] = []
        took: list[float] = []
        end = loop.time() + seconds
        while loop.time() < end:
            due = loop.time() + _PROBE_S
            await asyncio.sleep(_PROBE_S)
            lags.append(max(0.0, loop.time() - due))
            started = loop.time()
            await self._app(dict(_SCOPE), _receive_request, _send_nothing)
            took.append(loop.time() - started)
        return lags, took


async def _receive_request() -> dict[str, Any]:
    return {"type": "http.request", "body": b"{}", "more_body": False}


async def _send_nothing(message: Any) -> None:
    """The client takes everything at once."""


def beside(app: App, pid: int, seconds: float, pairs: int) -> dict[str, tuple[float, float]]:
    """Medians of (lag, request) with the sampler running and stopped, in turn."""
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "beside": []}
    for pair in range(pairs):
        for which in ("alone", "beside") if pair % 2 else ("beside", "alone"):
            if which == "alone":
                os.kill(pid, signal.SIGSTOP)
            try:
                found[which].append(app.measure(seconds / pairs / 2))
            finally:
                os.kill(pid, signal.SIGCONT)
    return {
        which: (statistics.median(lag for lag, _ in made), statistics.median(one for _, one in made))
        for which, made in found.items()
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=40.0, help="seconds of each measurement; there are three")
    parser.add_argument("--pairs", type=int, default=8, help="the app with and without the sampler, in turn")
    options = parser.parse_args()
    seconds, pairs = (5.0, 2) if options.quick else (options.seconds, options.pairs)
    figures: dict[str, Figure] = {}
    with workspace(options.work) as work, receiver() as (endpoint, told):
        library = build(work)
        app = App(endpoint)
        with sampling(library, endpoint) as pid:
            figures["sampler_cpu_pct"] = cpu_pct(pid, seconds)
            found = beside(app, pid, seconds, pairs)
        for which, (lag, request) in found.items():
            figures[f"loop_lag_p99_ms_{which}"], figures[f"request_ms_{which}"] = lag, request
        with sampling(library, endpoint, _AMPERE_WITHOUT_BYTE_COUNTERS) as pid:
            # What was told before is of the other sampler; the first interval holds this one's start.
            time.sleep(4)
            while told.poll():
                told.recv()
            figures["sampler_cpu_pct_pcie_call"] = cpu_pct(pid, max(seconds / 2, 11.0), settle_s=0.0)
            figures["loop_lag_p99_ms_pcie_call"], figures["request_ms_pcie_call"] = app.measure(seconds / 4)
        app.close()
        intervals = []
        while told.poll():
            intervals.append(told.recv())
        figures["interval_s_pcie_call"] = statistics.median(intervals) if intervals else None
    report("sampler", options.seed, figures)


if __name__ == "__main__":
    main()

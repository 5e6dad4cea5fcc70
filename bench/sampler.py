"""What `tailtrace sample` costs for 8 GPUs at the fast tier, and whether an event loop beside it notices.

The GPUs are the NVML stub, which answers at once: this is the sampler's own cost, not the driver's.
`interval_s_pcie_call` is the mean time between two fast ticks while
every GPU's PCIe traffic is read by the call that blocks for 20 ms in each direction.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from nvml_stub import build

_PROBE_S = 0.005
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


def cpu_pct(pid: int, seconds: float) -> float:
    """CPU of a running sampler in percent of one core, its start left out."""
    time.sleep(4)
    used, started = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(pid) - used) / (time.monotonic() - started)


def sampler_cpu_pct(work: Path, seconds: float) -> float:
    """CPU of the sampler for 8 GPUs on the stub, in percent of one core."""
    with receiver() as (endpoint, _), sampling(build(work), endpoint) as pid:
        return cpu_pct(pid, seconds)


def loop_lag_ms(seconds: float) -> float:
    """99th percentile of how late a loop that does nothing else runs a callback."""

    async def main() -> list[float]:
        loop, lags = asyncio.get_running_loop(), []
        end = loop.time() + seconds
        while loop.time() < end:
            due = loop.time() + _PROBE_S
            await asyncio.sleep(_PROBE_S)
            lags.append(loop.time() - due)
        return lags

    return 1000 * quantile(asyncio.run(main()), 0.99)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of each measurement")
    parser.add_argument("--pairs", type=int, default=5, help="loop lag with and without the sampler, in turn")
    options = parser.parse_args()
    seconds, pairs = (5.0, 2) if options.quick else (options.seconds, options.pairs)
    figures: dict[str, Figure] = {}
    with workspace(options.work) as work, receiver() as (endpoint, told):
        library = build(work)
        with sampling(library, endpoint) as pid:
            figures["sampler_cpu_pct"] = cpu_pct(pid, seconds)
        alone, beside = [], []
        for _ in range(pairs):
            alone.append(loop_lag_ms(seconds / pairs))
            with sampling(library, endpoint):
                time.sleep(2)
                beside.append(loop_lag_ms(seconds / pairs))
        figures["loop_lag_p99_ms_alone"] = statistics.median(alone)
        figures["loop_lag_p99_ms_beside"] = statistics.median(beside)
        while told.poll():
            told.recv()
        with sampling(library, endpoint, _AMPERE_WITHOUT_BYTE_COUNTERS) as pid:
            time.sleep(3)
            while told.poll():
                told.recv()
            figures["sampler_cpu_pct_pcie_call"] = cpu_pct(pid, max(seconds / 2, 9.0))
        intervals = []
        while told.poll():
            intervals.append(told.recv())
        figures["interval_s_pcie_call"] = statistics.median(intervals) if intervals else None
    report("sampler", options.seed, figures)


if __name__ == "__main__":
    main()

"""Several receivers on one ClickHouse server, as processes. The server is the embedded engine behind HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from product import answers, free_port

SERVER = Path(__file__).resolve().parents[1] / "tests" / "ingest" / "clickhouse_process.py"


@dataclass(frozen=True)
class Fleet:
    """Pids of server and receivers, and the receivers' OTLP ports."""

    server_pid: int
    pids: list[int]
    otlp_ports: list[int]
    url: str

    def scalar(self, sql: str) -> int:
        """The one number that a statement gives."""
        answer = httpx.post(self.url, content=sql, headers={"x-clickhouse-key": "bench"}, timeout=60)
        answer.raise_for_status()
        return int(answer.text)


@contextmanager
def fleet(folder: Path, receivers: int) -> Iterator[Fleet]:
    """Starts server and receivers on free ports, each receiver with a journal of its own, and stops them."""
    (folder / "server").mkdir(parents=True)
    processes: list[subprocess.Popen[str]] = []
    ports = []
    try:
        server = subprocess.Popen(
            [sys.executable, str(SERVER), str(folder / "server"), "bench"], stdout=subprocess.PIPE, text=True
        )
        processes.append(server)
        assert server.stdout is not None
        address = f"127.0.0.1:{server.stdout.readline().strip()}"
        environment = {**os.environ, "TAILTRACE_CLICKHOUSE_URL": f"http://any:bench@{address}/tailtrace"}
        for number in range(receivers):
            port = free_port()
            command = [
                sys.executable, "-m", "tailtrace", "ingest", f"--data={folder / f'receiver-{number}'}", "--port=0",
                f"--otlp-http-port={port}", "--otlp-grpc-port=0",
            ]  # fmt: skip
            with (folder / f"receiver-{number}.log").open("w") as log:
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True))
            ports.append(port)
        deadline = time.monotonic() + 120
        while not all(answers(f"http://127.0.0.1:{port}/") for port in ports):
            if time.monotonic() > deadline:
                raise RuntimeError("the receivers did not come up")
            time.sleep(0.1)
        pids = [process.pid for process in processes[1:]]
        yield Fleet(server.pid, pids, ports, f"http://{address}/?database=tailtrace")
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()

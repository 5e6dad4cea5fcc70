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


class Server:
    """The ClickHouse server: can be killed and started again at its address."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.port = free_port()
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(SERVER), str(self._folder), "bench", str(self.port)]
        with (self._folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Fleet:
    """The server, pids of the receivers, and their OTLP ports."""

    server: Server
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
    server = Server(folder / "server")
    processes: list[subprocess.Popen[str]] = []
    ports = []
    try:
        address = f"127.0.0.1:{server.port}"
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
        pids = [process.pid for process in processes]
        yield Fleet(server, pids, ports, f"http://{address}/?database=tailtrace")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
        server.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(20)
        server.process.kill()

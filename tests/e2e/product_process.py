"""The product as its users run it: processes on free ports with a data directory of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0


def wait_until(what: str, condition: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
    """The first true value of `condition`; fails the test when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s:.0f} s"
        time.sleep(0.05)
    return value


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def stop_all(processes: Sequence[subprocess.Popen[bytes]], wait_s: float) -> None:
    """Asks those that still run to end, and kills what does not in time."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9; gives back when the children that hold the doors have ended as well."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    for child in children:
        wait_until(f"end of {child}", lambda child=child: not Path(f"/proc/{child}").exists(), 20)


class Part:
    """One process of a fleet, with its log."""

    def __init__(self, name: str, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        self._command, self._environment = command, {**os.environ, **environment}
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, env=self._environment, cwd=self.log.parent
            )

    def kill(self) -> None:
        kill(self.process)

    def told(self) -> str:
        return self.log.read_text(errors="replace")


class Server:
    """One `tailtrace up` (or `demo`)."""

    def __init__(self, data: Path, log: Path, *, command: str = "up", options: tuple[str, ...] = ()) -> None:
        self.data, self.log = data, log
        self.port, self.otlp_port, self.grpc_port = free_ports(3)
        ports = [f"--port={self.port}", f"--otlp-http-port={self.otlp_port}", f"--otlp-grpc-port={self.grpc_port}"]
        arguments = [sys.executable, "-m", "tailtrace", command, f"--data={data}", *ports, *options]
        with log.open("wb") as output:
            self.process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent)

    def kill(self) -> None:
        kill(self.process)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.otlp_port}"

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_ready(self, *, times: int = 1) -> Server:
        def ready() -> bool:
            assert self.process.poll() is None, self.told()
            return self.told().count("ready") >= times

        wait_until(f"{times}. readiness", ready)
        return self

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)

    def sql(self, statement: str) -> list[list[Any]]:
        request = urllib.request.Request(
            f"{self.url}/api/v1/sql", json.dumps({"sql": statement}).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            rows: list[list[Any]] = json.load(answer)["rows"]
            return rows

    def send(self, body: bytes, timeout_s: float = 30) -> bool:
        """Whether the body was acknowledged."""
        request = urllib.request.Request(
            f"{self.endpoint}/v1/traces", body, {"content-type": "application/x-protobuf"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False

    def owner_pid(self) -> int:
        """The pid of the one child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (pid,) = children
        return int(pid)

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 10) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

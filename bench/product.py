"""The product as its users run it: `tailtrace up` as a process of its own on free ports and a fresh data directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx


@dataclass(frozen=True)
class Product:
    """A running `tailtrace up`. `pid` is the parent's; its tree holds the owner child."""

    pid: int
    data: Path
    ui: str
    otlp_port: int
    log: Path

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of one API route; raises with the server's own words when it is no success."""
        response = httpx.get(f"{self.ui}{path}", params=params, timeout=60)
        if response.status_code >= 400:
            raise RuntimeError(f"GET {path}: {response.status_code} {response.text[:500]}")
        return response.json()

    def scalar(self, sql: str, client: httpx.Client) -> int:
        """The one number that a read-only statement gives."""
        response = client.post(f"{self.ui}/api/v1/sql", json={"sql": sql})
        if response.status_code >= 400:
            raise RuntimeError(f"{sql}: {response.status_code} {response.text[:500]}")
        row = response.json()["rows"][0]
        return int((list(row.values()) if isinstance(row, dict) else row)[0])

    def lag_s(self, client: httpx.Client) -> float:
        """How far the jobs are behind what has been received, in seconds."""
        newest = "SELECT Shard, max(ReceivedUpTo) AS upto FROM watermarks WHERE Job = 'requests' GROUP BY Shard"
        lag = f"SELECT toInt64(dateDiff('millisecond', min(upto), now64(3))) FROM ({newest})"
        return self.scalar(lag, client) / 1e3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Whether anything below 500 comes back."""
    try:
        return httpx.get(url, timeout=2).status_code < 500
    except httpx.HTTPError:
        return False


@contextmanager
def running(data: Path, environment: Mapping[str, str] | None = None, timeout_s: float = 120) -> Iterator[Product]:
    """Starts the product, waits until both doors answer, and stops it with Ctrl-C's signal at the end."""
    ui_port, otlp_port = free_port(), free_port()
    data.mkdir(parents=True, exist_ok=True)
    log = data.with_name(data.name + ".log")
    command = [
        sys.executable, "-m", "tailtrace", "up", "--data", str(data), "--port", str(ui_port),
        "--otlp-http-port", str(otlp_port), "--otlp-grpc-port", "0",
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
    product = Product(process.pid, data, f"http://127.0.0.1:{ui_port}", otlp_port, log)
    try:
        deadline = time.monotonic() + timeout_s
        while not (answers(f"{product.ui}/api/v1/services") and answers(f"http://127.0.0.1:{otlp_port}/")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"tailtrace up did not come up:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        yield product
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

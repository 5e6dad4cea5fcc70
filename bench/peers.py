"""Other stores of OTLP traces, installed and run as ours is: MLflow and Arize Phoenix, both on SQLite by default."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness import wait_until
from load import send
from product import answers, free_port


class Bodies(Protocol):
    """What `payload.BodyFactory` offers."""

    spans_per_body: int

    def body(self, now_ns: int) -> bytes: ...


@dataclass(frozen=True)
class Peer:
    """How one peer is installed, started, told to store a span, and asked how many it has."""

    name: str
    packages: Sequence[str]
    command: Callable[[Path, Path, int], list[str]]
    environment: Callable[[Path, int], Mapping[str, str]]
    database: str
    ready_path: str
    headers: Mapping[str, str] = field(default_factory=dict)


MLFLOW = Peer(
    name="mlflow",
    packages=("mlflow",),
    command=lambda env, data, port: [
        str(env / "bin" / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "4",
        "--backend-store-uri", f"sqlite:///{data}/mlflow.db", "--artifacts-destination", str(data / "artifacts"),
    ],
    environment=lambda data, port: {"MLFLOW_DISABLE_TELEMETRY": "true"},
    database="mlflow.db",
    ready_path="/health",
    headers={"x-mlflow-experiment-id": "0"},
)  # fmt: skip

PHOENIX = Peer(
    name="phoenix",
    packages=("arize-phoenix",),
    command=lambda env, data, port: [str(env / "bin" / "phoenix"), "serve"],
    environment=lambda data, port: {
        "PHOENIX_WORKING_DIR": str(data),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    },
    database="phoenix.db",
    ready_path="/healthz",
)


def installed(peer: Peer, work: Path) -> Path:
    """The peer's virtual environment below `work`, made once."""
    environment = work / f"venv-{peer.name}"
    done = environment / "installed"
    if not done.exists():
        venv.create(environment, with_pip=True, clear=True)
        subprocess.run([environment / "bin" / "pip", "install", "--quiet", *peer.packages], check=True)
        done.touch()
    return environment


def stored_spans(database: Path) -> int:
    """Rows of the peer's own `spans` table, read beside the running server."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30) as connection:
        return int(connection.execute("SELECT count(*) FROM spans").fetchone()[0])


@contextmanager
def serving(peer: Peer, work: Path) -> Iterator[tuple[int, Path]]:
    """The peer as a process on an empty folder below `work`: its port and its database file."""
    environment = installed(peer, work)
    data = work / f"data-{peer.name}-{time.time_ns()}"
    data.mkdir(parents=True)
    port = free_port()
    with (data / "server.log").open("wb") as log:
        server = subprocess.Popen(
            peer.command(environment, data, port), cwd=data, stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, **peer.environment(data, port)},
        )  # fmt: skip
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}{peer.ready_path}"), 180, f"{peer.name} answering", 0.5)
        yield port, data / peer.database
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def peer_spans_per_s(peer: Peer, work: Path, bodies: Bodies, seconds: float) -> float:
    """Spans a second from the first sent until all acknowledged are stored, or until five times `seconds` are over."""
    with serving(peer, work) as (port, database):
        started = time.monotonic()
        load = asyncio.run(
            send(port, lambda: bodies.body(time.time_ns()), seconds=seconds, connections=4, headers=peer.headers)
        )
        sent = load.bodies * bodies.spans_per_body
        deadline = started + 5 * seconds
        while (stored := stored_spans(database)) < sent and time.monotonic() < deadline:
            time.sleep(0.25)
        took_s = time.monotonic() - started
        print(f"{peer.name}: {sent:,} acknowledged, {stored:,} stored in {took_s:.0f} s")
        return stored / took_s

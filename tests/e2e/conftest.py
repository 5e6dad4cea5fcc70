"""Fixtures that start the product and leave nothing of it behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from product_process import DEADLINE_S, Server, stop_all

# The receiver that keeps what it is sent, and the judge behind it, are a benchmark's too.
sys.path.append(str(Path(__file__).parents[2] / "bench"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers on `tmp_path / "data"` unless told otherwise, and leaves none behind."""
    servers: list[Server] = []

    def started(data: Path | None = None, **options: Any) -> Server:
        server = Server(data or tmp_path / "data", tmp_path / f"server-{len(servers)}.log", **options)
        servers.append(server)
        return server

    yield started
    stop_all([server.process for server in servers], 10)


@pytest.fixture
def tailtrace() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command to its end."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tailtrace", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    return run

"""How a server starts, what it refuses, how it stops."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest


def test_one_server_from_start_to_stop(start: Callable[..., Any], tailtrace: Callable[..., Any], tmp_path: Any) -> None:
    server = start(options=("--token=secret",)).wait_ready()
    ready = server.get("/readyz")
    assert (ready["status"], ready["journal_bytes"]) == ("ready", 0)
    # Probes need no token and tell nothing; everything else needs it.
    assert set(server.get("/healthz")) == {"status", "version", "uptime_s"}
    with pytest.raises(Exception, match="401"):
        server.get("/api/v1/requests")

    second = start(server.data)
    assert second.process.wait(30) == 3
    assert f"data directory {server.data} is in use by another process (pid {server.owner_pid()})" in second.told()
    # Also when it is the ports that clash first: that somebody runs there already says more.
    same = tailtrace("up", f"--data={server.data}", f"--port={server.port}")
    assert (same.returncode, f"pid {server.owner_pid()}" in same.stderr) == (3, True)

    assert server.stop(signal.SIGTERM, timeout_s=10) == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "server-0.log", "server-1.log"]


@pytest.mark.parametrize("option", ["--port", "--otlp-http-port", "--otlp-grpc-port"])
def test_a_taken_port_is_named_before_anything_starts(
    tailtrace: Callable[..., Any], tmp_path: Any, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"--port": "0", "--otlp-http-port": "0", "--otlp-grpc-port": "0", option: str(port)}
        outcome = tailtrace("up", f"--data={tmp_path / 'data'}", *(f"{name}={value}" for name, value in ports.items()))
    assert outcome.returncode == 2
    assert outcome.stderr.count("\n") == 1
    assert f"port {port}" in outcome.stderr
    assert option in outcome.stderr
    assert not (tmp_path / "data").exists()


def test_open_to_others_only_with_a_token(tailtrace: Callable[..., Any], tmp_path: Any) -> None:
    outcome = tailtrace("up", f"--data={tmp_path / 'data'}", "--host=0.0.0.0")
    assert outcome.returncode == 2
    assert "--insecure" in outcome.stderr

"""Gunicorn: an app that is loaded before its workers, workers that a reload replaces, and an end by SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from receiver import receiver, until
from test_processes import SERVICE, ask, asked_and_ended

ARGUMENTS = ("--workers", "2", "--worker-class", "uvicorn_worker.UvicornWorker", "--log-level", "error")


@pytest.mark.parametrize("preload", [(), ("--preload",)], ids=["loaded by each worker", "loaded before them"])
def test_each_worker_reports_also_those_after_a_reload(tmp_path: Path, preload: tuple[str, ...]) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with receiver() as sink:
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.endpoint}
        master = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "service:app", "--bind", f"127.0.0.1:{port}", *ARGUMENTS, *preload],
            cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(lambda: ask(port), 40)
            before = 1 + sum(ask(port) for _ in range(20))
            former = children(master.pid)
            master.send_signal(signal.SIGHUP)
            until(lambda: len(children(master.pid)) == 2 and not children(master.pid) & former, 40)
            asked = before + asked_and_ended(master, port)
        finally:
            master.kill()
            master.wait()
        spans = sink.spans()
    assert [name for _, _, name in spans if name == "GET"] == ["GET"] * asked
    assert len({instance for instance, _, _ in spans}) >= 3


def children(pid: int) -> set[int]:
    """The processes that this one has started."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

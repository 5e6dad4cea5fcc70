"""Data of every released schema version is opened by this release, and goes on from there."""

import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tailtrace.ingest.store.migrations import migrations

HERE = Path(__file__).resolve().parent
ARCHIVES = sorted((HERE.parent / "data" / "directories").glob("schema-*.tar.xz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_an_old_directory_is_opened_and_written_to(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    opened = subprocess.run(
        [sys.executable, str(HERE / "opened_directory.py"), str(tmp_path / "data")],
        env={**os.environ, "PYTHONPATH": str(HERE)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert opened.returncode == 0, opened.stderr
    found = json.loads(opened.stdout)
    assert found["version"] == max(migration.version for migration in migrations())
    assert found["rows"] == {
        "otel_traces": 5, "otel_traces_trace_id_ts": 2, "span_inbox": 5, "otel_logs": 3, "otel_metrics_gauge": 1,
        "otel_metrics_sum": 1,
    }  # fmt: skip


def test_a_newer_directory_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVES[-1]) as packed:
        packed.extractall(tmp_path, filter="data")
    newer = (
        "import sys; from pathlib import Path\n"
        "from tailtrace.ingest.settings import ServerSettings; from tailtrace.ingest.store import open_store\n"
        "store = open_store(ServerSettings(data=Path(sys.argv[1])))\n"
        "store.command(\"INSERT INTO schema_version (Version, Name) VALUES (9999, 'of the future')\"); store.close()"
    )
    data = str(tmp_path / "data")
    subprocess.run([sys.executable, "-c", newer, data], check=True, timeout=120)
    started = subprocess.run(
        [sys.executable, "-m", "tailtrace", "up", f"--data={data}", "--port=0", "--otlp-grpc-port=0",
         f"--otlp-http-port={free_port()}"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert started.returncode == 1
    assert "schema version 9999" in started.stdout
    assert "upgrade" in started.stdout


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_there_is_one_to_open() -> None:
    assert ARCHIVES

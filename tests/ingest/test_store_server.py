"""The store over HTTP: the contract, against ClickHouse's interface served by a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_contract import StoreContract

from tailtrace.errors import ConfigError, StoreDead, StoreError
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store
from tailtrace.ingest.store.server import ServerStore

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a writable ClickHouse whose password is `secret`."""
    directory = tmp_path_factory.mktemp("clickhouse")
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("clickhouse_process.py")), str(directory), "secret"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    yield f"127.0.0.1:{process.stdout.readline().strip()}"
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="module")
def server_store(address: str) -> Iterator[Store]:
    store = open_store(ServerSettings(clickhouse_url=f"http://any:secret@{address}/tailtrace"))
    yield store
    store.close()


class TestServer(StoreContract):
    """Runs the kit over HTTP."""

    @pytest.fixture
    def store(self, server_store: Store) -> Store:
        server_store.command("TRUNCATE TABLE otel_traces")
        server_store.command("TRUNCATE TABLE otel_traces_trace_id_ts")
        return server_store


def test_a_wrong_password_is_refused(address: str) -> None:
    with pytest.raises(StoreError, match="wrong or missing token"):
        ServerStore(f"http://any:wrong@{address}/tailtrace")


def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9 cannot be used"):
        ServerStore("http://127.0.0.1:9/tailtrace")


def test_a_url_that_is_none_says_what_was_expected() -> None:
    with pytest.raises(ConfigError, match="http://user:password@host:8123/tailtrace"):
        ServerStore("localhost:8123")


def test_a_closed_store_says_so(address: str) -> None:
    store = ServerStore(f"http://any:secret@{address}/tailtrace")
    store.close()
    with pytest.raises(StoreDead):
        store.query("SELECT 1")

"""The store over HTTP: the contract, against ClickHouse's interface served by a process of its own."""

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from bodies import trace_body
from store_contract import StoreContract

from tailtrace.errors import ConfigError, StoreDead, StoreError
from tailtrace.ingest.pipeline import Pipeline
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


class CuttingProxy:
    """Hands requests on and answers back, but cuts the connection in place of the first `cuts` answers to inserts.

    What is cut has been carried out: the server's answer has arrived here.
    """

    def __init__(self, server: str, cuts: int) -> None:
        self._server = server
        self.cuts = cuts
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if self.headers.get("transfer-encoding", "") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("content-length", 0)))
                kept = {k: v for k, v in self.headers.items() if k.lower() not in ("transfer-encoding", "host")}
                connection = http.client.HTTPConnection(proxy._server, timeout=60)
                connection.request("POST", self.path, body, kept)
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                if proxy.cuts and answer.status == 200 and b"Protobuf" in body[:200] + self.path.encode():
                    proxy.cuts -= 1
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                        self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


def test_a_connection_cut_after_the_insert_and_before_the_answer_doubles_nothing(
    address: str, server_store: Store, tmp_path: Path
) -> None:
    for table in ("otel_traces", "otel_traces_trace_id_ts", "span_inbox"):
        server_store.command(f"TRUNCATE TABLE {table}")
    proxy = CuttingProxy(address, cuts=2)
    store = open_store(ServerSettings(clickhouse_url=f"http://any:secret@{proxy.address}/tailtrace"))
    settings = ServerSettings(data=tmp_path, min_free_bytes=0)
    pipeline = Pipeline(store, tmp_path / "journal", settings)
    pipeline.start()
    for _ in range(3):
        pipeline.submit("traces", trace_body(4), 4).result(30)
        pipeline.flush(60)
    pipeline.stop()
    store.close()
    proxy.http.shutdown()
    assert (proxy.cuts, pipeline.counters()["insert_failures"]) == (0, 2)
    for table in ("otel_traces", "span_inbox"):
        assert server_store.query(f"SELECT count() AS n FROM {table}") == [{"n": 12}]
    bounds = "SELECT uniqExact(TraceId) AS n FROM otel_traces_trace_id_ts"
    assert server_store.query(bounds) == [{"n": 3}]


def test_a_closed_store_says_so(address: str) -> None:
    store = ServerStore(f"http://any:secret@{address}/tailtrace")
    store.close()
    with pytest.raises(StoreDead):
        store.query("SELECT 1")

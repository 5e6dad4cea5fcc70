"""ClickHouse's interface over the embedded store, as its clients use it."""

import threading
from collections.abc import Iterator

import pytest
import uvicorn
from clickhouse_connect import get_client
from clickhouse_connect.driver.exceptions import DatabaseError
from starlette.testclient import TestClient

from tailtrace.ingest.clickhouse_http import create_clickhouse_app
from tailtrace.ingest.store import Store
from tailtrace.ingest.store.embedded import EmbeddedStore


@pytest.fixture
def http(store: Store) -> TestClient:
    assert isinstance(store, EmbeddedStore)
    return TestClient(create_clickhouse_app(store, "secret".__eq__))


def test_the_token_is_asked_for(http: TestClient) -> None:
    assert http.get("/", params={"query": "SELECT 1"}).status_code == 401
    assert http.get("/", params={"query": "SELECT 1", "password": "wrong"}).status_code == 401
    assert http.get("/", params={"query": "SELECT 1"}, auth=("any", "secret")).text == "1\n"
    assert http.post("/", content="SELECT 2", headers={"X-ClickHouse-Key": "secret"}).text == "2\n"
    assert http.get("/", params={"query": "SELECT 3"}, headers={"Authorization": "Bearer secret"}).text == "3\n"
    assert http.get("/ping").text == "Ok.\n"


def test_nothing_can_be_changed(http: TestClient, store: Store) -> None:
    for sql in ("TRUNCATE TABLE otel_traces", "SELECT file('/etc/passwd')", "SELECT 1 INTO OUTFILE 'x'"):
        assert http.post("/", content=sql, auth=("any", "secret")).status_code == 403
    refused = http.post("/", content="SELECT 1 SETTINGS readonly = 0", auth=("any", "secret"))
    assert refused.status_code == 500
    assert refused.headers["X-ClickHouse-Exception-Code"] == "164"


def test_rows_are_limited(http: TestClient) -> None:
    answer = http.post("/", content="SELECT * FROM numbers(1000001)", auth=("any", "secret"))
    assert answer.headers["X-ClickHouse-Exception-Code"] == "396"


def test_parameters_and_formats(http: TestClient) -> None:
    query = {"query": "SELECT {x:String} AS x FORMAT JSONEachRow", "param_x": "it\\'s"}
    answer = http.get("/", params=query, auth=("any", "secret"))
    assert answer.text == '{"x":"it\'s"}\n'
    assert answer.headers["X-ClickHouse-Format"] == "JSONEachRow"


@pytest.fixture
def port(store: Store) -> Iterator[int]:
    assert isinstance(store, EmbeddedStore)
    app = create_clickhouse_app(store, "secret".__eq__)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.01)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join()


def test_the_official_client_reads(port: int) -> None:
    client = get_client(host="127.0.0.1", port=port, username="any", password="secret", database="tailtrace")
    assert client.query("SELECT number, toString(number) FROM numbers(2)").result_rows == [(0, "0"), (1, "1")]
    assert client.query_arrow("SELECT 1 AS a").column_names == ["a"]
    with pytest.raises(DatabaseError, match="reading statements"):
        client.command("DROP TABLE otel_traces")
    client.close()

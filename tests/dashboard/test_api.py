"""The JSON API: keys, filters, errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard_seed import MS, TRACE
from seeding import T0
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

ROW_KEYS = {
    *(
        "trace_id",
        "span_id",
        "service",
        "name",
        "is_root",
        "kind",
        "start_unix_ns",
        "duration_ns",
        "ttft_ns",
        "tpot_ns",
    ),
    *("outcome", "streaming", "input_tokens", "output_tokens", "n", "model", "version", "replica", "stages"),
    *("unexplained_ns", "flags"),
}


@pytest.fixture
def client(seeded: Store, settings: ServerSettings) -> Iterator[TestClient]:
    with TestClient(create_app(seeded, settings), base_url="http://127.0.0.1") as client:
        yield client


def test_the_list_has_the_keys_that_are_promised(client: TestClient) -> None:
    body = client.get("/api/v1/requests", params={"limit": 2}).json()
    assert {"requests", "total", "next"} <= set(body)
    assert body["total"] == 121
    row = body["requests"][0]
    assert set(row) >= ROW_KEYS
    assert row["trace_id"] == TRACE
    assert row["start_unix_ns"] == str(T0)
    assert row["stages"] == [
        {"stage": "auth", "duration_ns": 10 * MS, "share": 0.1, "derived": False},
        {"stage": "queue", "duration_ns": 20 * MS, "share": 0.2, "derived": False},
        {"stage": "decode", "duration_ns": 60 * MS, "share": 0.6, "derived": False},
    ]
    assert row["unexplained_ns"] == 10 * MS
    assert row["ttft_ns"] is None


def test_paging_by_the_cursor_it_gave(client: TestClient) -> None:
    first = client.get("/api/v1/requests", params={"limit": 100, "order": "slowest"}).json()
    second = client.get("/api/v1/requests", params={"limit": 100, "order": "slowest", "cursor": first["next"]}).json()
    assert (len(first["requests"]), len(second["requests"]), second["next"]) == (100, 21, None)
    durations = [row["duration_ns"] for row in first["requests"] + second["requests"]]
    assert durations == sorted(durations, reverse=True)


def test_a_trace_by_id_in_either_case(client: TestClient) -> None:
    lower = client.get(f"/api/v1/requests/{TRACE}").json()
    assert client.get(f"/api/v1/requests/{TRACE.upper()}").json() == lower
    assert lower["spans_total"] == lower["spans_shown"] == 4
    assert [line["stage"] for line in lower["stage_table"]] == ["auth", "queue", "decode", "unexplained"]
    assert set(lower["definitions"]) == {"auth", "queue", "decode", "unexplained"}


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/requests/abc", 400, "rejected"),
        (f"/api/v1/requests/{'f' * 32}", 404, "not_found"),
        (f"/api/v1/requests/{TRACE}/spans/{'f' * 16}", 404, "not_found"),
        ("/api/v1/requests?limit=0", 400, "rejected"),
        ("/api/v1/requests?order=random", 400, "rejected"),
        ("/api/v1/requests?min_duration_ns=-1", 400, "rejected"),
        ("/api/v1/requests?since=yesterday", 400, "rejected"),
        ("/api/v1/requests?cursor=zzz", 400, "rejected"),
        ("/api/v1/overview?range=soon", 400, "rejected"),
        ("/api/v1/nothing", 404, "not_found"),
        ("/api", 404, "not_found"),
        ("/api/v2/requests", 404, "not_found"),
    ],
)
def test_every_error_has_one_shape(client: TestClient, path: str, status: int, code: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["code"] == code
    assert body["error"]["message"]


def test_a_failure_of_our_own_has_the_shape_too(
    store: Store, settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> object:
        raise ZeroDivisionError("secret of the inside")

    with TestClient(create_app(store, settings), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        monkeypatch.setattr(store, "query", fails)
        monkeypatch.setattr(store, "query_arrow", fails)
        answer = client.get("/api/v1/services")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "failed"
    assert "secret" not in answer.text


def test_the_other_answers(client: TestClient) -> None:
    assert [one["service"] for one in client.get("/api/v1/services").json()["services"]] == ["api", "gateway"]
    assert [one["service"] for one in client.get("/api/v1/overview").json()["services"]] == ["api", "gateway"]
    assert client.get("/api/v1/series", params={"service": "api"}).json()["metric"] == "duration"
    assert client.get("/api/v1/freshness").json()["newest_unix_ns"] == str(T0 + 100 * MS)
    assert client.get("/api/v1/health").json()["status"] == "ok"
    assert client.get(f"/api/v1/requests/{TRACE}/waterfall").json()["total"] == 4
    assert client.get(f"/api/v1/requests/{TRACE}/spans/{3:016x}").json()["attributes"]["tailtrace.stage"] == "queue"
    assert "/api/v1/requests/{trace_id}" in client.get("/api/v1/openapi.json").json()["paths"]


def test_sql_reads_and_refuses(client: TestClient) -> None:
    good = client.post(
        "/api/v1/sql",
        json={"sql": "SELECT count() AS n FROM requests WHERE Service = {s:String}", "parameters": {"s": "api"}},
    )
    assert good.json() == {"columns": ["n"], "rows": [[120]], "truncated": False}
    for bad in ("DROP TABLE requests", "SELECT * FROM nowhere", "SELECT file('/etc/passwd')"):
        answer = client.post("/api/v1/sql", json={"sql": bad})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "rejected")
    assert client.post("/api/v1/sql", content="{", headers={"content-type": "application/json"}).status_code == 400


def test_an_empty_store_answers_everywhere(store: Store, settings: ServerSettings) -> None:
    with TestClient(create_app(store, settings), base_url="http://127.0.0.1") as client:
        assert client.get("/api/v1/requests").json()["total"] == 0
        for path in ("services", "overview", "freshness", "health"):
            assert client.get(f"/api/v1/{path}").status_code == 200
        assert client.get("/api/v1/series?service=x").status_code == 404


def test_what_the_process_knows_is_in_health(store: Store, settings: ServerSettings) -> None:
    with TestClient(
        create_app(store, settings, health=lambda: {"journal_bytes": 7}), base_url="http://127.0.0.1"
    ) as client:
        assert client.get("/api/v1/health").json()["journal_bytes"] == 7

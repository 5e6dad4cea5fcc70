"""Two dashboards as processes on one ClickHouse server: what a reader has at one, the other has too."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from draw_question import draw_question
from product_process import Part, free_ports, stop_all, wait_until
from seeding import SECOND, T0, insert_requests, request

from tailtrace.dashboard.security import COOKIE
from tailtrace.dashboard.views import HEADER
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store

CLICKHOUSE = Path(__file__).resolve().parents[1] / "ingest" / "clickhouse_process.py"
TOKEN = "token-of-both"
MS = 1_000_000
START_S = 120.0
VIEW = "a-view-of-this-test"
TRACE = "c" * 32
# What the page of a trace asks first then takes minutes, and no CPU.
SLOW = (
    "RENAME TABLE otel_traces_trace_id_ts TO aside",
    f"""CREATE VIEW otel_traces_trace_id_ts AS
      SELECT '{TRACE}' AS TraceId, now64(9, 'UTC') AS Start, now64(9, 'UTC') AS End
      FROM numbers(10000) WHERE sleepEachRow(0.02) = 0 SETTINGS max_block_size = 20, max_threads = 1""",
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[httpx.Client], Store]]:
    """Clients of two dashboards, one of them logged in, and their store with 120 requests in it."""
    folder = tmp_path_factory.mktemp("fleet")
    clickhouse_port, *ports = free_ports(3)
    (folder / "clickhouse").mkdir()
    url = f"http://any:secret@127.0.0.1:{clickhouse_port}/tailtrace"
    places = {"TAILTRACE_CLICKHOUSE_URL": url, "TAILTRACE_TOKEN": TOKEN}
    server = [sys.executable, str(CLICKHOUSE), str(folder / "clickhouse"), "secret", str(clickhouse_port)]
    parts = [Part("clickhouse", folder, server, {})]
    clients = [httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) for port in ports]

    def there(address: str) -> bool:
        assert all(part.process.poll() is None for part in parts), [part.told()[-2000:] for part in parts]
        try:
            return httpx.get(address, timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_until("the server", lambda: there(f"http://127.0.0.1:{clickhouse_port}/ping"), START_S)
        for port in ports:
            command = [sys.executable, "-m", "tailtrace", "dashboard", f"--port={port}"]
            parts.append(Part(f"dashboard-{port}", folder, command, places))
        for client in clients:
            wait_until("a dashboard", lambda c=client: there(f"{c.base_url}/api/v1/health"), START_S)
        store = open_store(ServerSettings(clickhouse_url=url, data=folder / "own"))
        rows = [request(n, duration_ns=(100 + n) * MS, end_ns=T0 - n * SECOND) for n in range(1, 121)]
        insert_requests(store, rows)
        assert clients[0].post("/login", data={"token": TOKEN}).status_code == 303
        yield clients, store
        store.close()
    finally:
        for client in clients:
            client.close()
        stop_all([part.process for part in reversed(parts)], 15)


def test_a_reader_may_be_sent_to_either(fleet: tuple[list[httpx.Client], Store]) -> None:
    (one, other), _ = fleet
    assert other.get("/api/v1/requests").status_code == 401
    other.cookies.set(COOKIE, one.cookies[COOKIE])
    first = one.get("/api/v1/requests", params={"limit": 70}).json()
    rest = other.get("/api/v1/requests", params={"limit": 70, "cursor": first["next"]}).json()
    assert len({row["trace_id"] for row in first["requests"] + rest["requests"]}) == 120
    rule = {"kind": "slo", "name": "fast", "service": "api", "sli": "duration", "objective": 0.9, "within": "1s"}
    assert one.post("/api/v1/rules", json=rule).status_code == 201
    assert other.get("/api/v1/rules/fast").json()["within"] == "1s"
    # A saved view is an address; the question of a page that one has served is answered by the other.
    question = draw_question(one, "/requests", "?order=slowest&min=150ms")
    drawn = [
        client.post("/_dash-update-component", json=question).json()["response"]["body"] for client in (one, other)
    ]
    assert drawn[0] == drawn[1]
    assert "showing 50 of 71" in str(drawn[1])


def test_a_view_is_watched_and_stopped_from_the_other(fleet: tuple[list[httpx.Client], Store]) -> None:
    (one, other), store = fleet
    other.cookies.set(COOKIE, one.cookies[COOKIE])
    for statement in SLOW:
        store.command(statement)
    question, answers = draw_question(one, f"/requests/{TRACE}"), []

    def ask() -> None:
        answers.append(one.post("/_dash-update-component", json=question, headers={HEADER: VIEW}))

    def lasting() -> bool:
        assert asking.is_alive(), answers
        found = other.get(f"/api/v1/views/{VIEW}").json()
        return bool(found["running"] and found["elapsed_ns"] > SECOND)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until("a question that takes long", lasting, START_S)
    assert other.get("/api/v1/views/another").json()["running"] == 0

    def stopped() -> bool:
        # As the browser does: a view that is between two statements is stopped in the next one.
        assert other.delete(f"/api/v1/views/{VIEW}").status_code == 204
        asking.join(0.5)
        return not asking.is_alive()

    wait_until("its end", stopped, START_S)
    assert "This query was stopped" in str(answers[0].json()["response"]["body"])

"""The routes of the statistical answers: parameters, shapes, errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from seeding import SECOND, T0, insert_requests, request
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

MS = 1_000_000
RANGE = {"since": str(T0 - 60 * SECOND), "until": str(T0 + 3600 * SECOND)}


@pytest.fixture
def client(store: Store, settings: ServerSettings) -> Iterator[TestClient]:
    rows = [
        request(
            k, duration_ns=(100 + k % 50) * MS, QueueNs=(k % 50) * MS, Version="1" if k < 150 else "2",
            Tenant=f"t{k % 2}", TtftNs=30 * MS, UnexplainedTtftNs=30 * MS,
        )
        for k in range(300)
    ]  # fmt: skip
    insert_requests(store, rows)
    with TestClient(create_app(store, settings), base_url="http://127.0.0.1") as client:
        yield client


def test_attribution_sums(client: TestClient) -> None:
    body = client.get("/api/v1/attribution", params={"service": "api", "q": 0.9, **RANGE}).json()
    assert (body["n"], body["source"], body["filters"]) == (300, "rollups", {})
    assert sum(part["duration_ns"] for part in body["stages"]) == body["value_ns"]
    filtered = client.get(
        "/api/v1/attribution",
        params=[("service", "api"), ("filter", "tenant=t1"), ("filter", "version=2"), *RANGE.items()],
    ).json()
    assert (filtered["n"], filtered["source"]) == (75, "rows")


def test_compare_by_attribute_at_a_time_and_with_what_was_before(client: TestClient) -> None:
    by = client.get("/api/v1/compare", params={"service": "api", "by": "version", "a": "1", "b": "2", **RANGE}).json()
    assert (by["a"]["n"], by["b"]["n"]) == (150, 150)
    assert by["conditions"][0]["name"] == "version"
    middle = str(T0 + 150 * SECOND)
    at = client.get("/api/v1/compare", params={"service": "api", "at": middle, "range": "5m"}).json()
    assert (at["a"]["n"], at["b"]["n"]) == (150, 150)
    before = client.get(
        "/api/v1/compare", params={"service": "api", "since": middle, "until": str(T0 + 300 * SECOND)}
    ).json()
    assert (before["a"]["n"], before["b"]["n"]) == (150, 150)
    assert before["a"]["until_unix_ns"] == before["b"]["since_unix_ns"] == middle


@pytest.mark.parametrize("path", ["root-cause", "slow", "whatif", "replicas", "batch-curve", "tokens"])
def test_every_answer_has_its_range(client: TestClient, path: str) -> None:
    body = client.get(f"/api/v1/{path}", params={"service": "api", **RANGE}).json()
    assert body["service"] == "api"
    assert int(body["since_unix_ns"]) <= T0 - 60 * SECOND


def test_what_if_takes_stages_and_start_up(client: TestClient) -> None:
    wanted = [("service", "api"), ("stage", "queue=0"), ("replicas", "2"), ("startup", "2m"), *RANGE.items()]
    body = client.get("/api/v1/whatif", params=wanted).json()
    assert (body["stages"], body["added_replicas"], body["startup_s"]) == ({"queue": 0.0}, 2, 120.0)
    assert [each["predicted_ns"] for each in body["predictions"][:3]] == [100 * MS] * 3


@pytest.mark.parametrize(
    "address",
    [
        "/api/v1/attribution",
        "/api/v1/attribution?service=api&q=1",
        "/api/v1/attribution?service=api&metric=speed",
        "/api/v1/attribution?service=api&filter=model",
        "/api/v1/attribution?service=api&filter=1%3D1--%3D2",
        "/api/v1/compare?service=api&by=version&a=1",
        "/api/v1/compare?service=api&by=colour&a=1&b=2",
        "/api/v1/whatif?service=api&stage=queue",
        "/api/v1/whatif?service=api&stage=queue%3Dfast",
        "/api/v1/whatif?service=api&stage=queue%3Dnan",
        "/api/v1/whatif?service=api&rate=0",
        "/api/v1/slow?service=api&threshold_ns=-1",
    ],
)
def test_what_cannot_be_asked_is_a_400_of_one_shape(client: TestClient, address: str) -> None:
    response = client.get(address)
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"code", "message"}


def test_an_empty_store_is_a_404(store: Store, settings: ServerSettings) -> None:
    with TestClient(create_app(store, settings), base_url="http://127.0.0.1") as client:
        response = client.get("/api/v1/attribution", params={"service": "api"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")

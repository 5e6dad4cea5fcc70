"""Rules, channels, markers and alerts by the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store


@pytest.fixture
def client(store: Store, settings: ServerSettings) -> Iterator[TestClient]:
    with TestClient(create_app(store, settings), base_url="http://127.0.0.1") as client:
        yield client


def test_rules_are_put_listed_tested_and_removed(client: TestClient) -> None:
    rule = {"kind": "threshold", "metric": "ttft", "above": "1s", "service": "chat"}
    assert client.put("/api/v1/rules/slow", json=rule).status_code == 200
    names = [each["name"] for each in client.get("/api/v1/rules").json()["rules"]]
    assert names == ["regressions", "slow"]
    answer = client.post("/api/v1/rules/test", json={"name": "slow"}).json()
    assert (answer["rule"], answer["fired"]) == ("slow", [])
    assert client.delete("/api/v1/rules/slow").status_code == 204
    assert client.delete("/api/v1/rules/slow").status_code == 404
    refused = client.put("/api/v1/rules/bad", json={**rule, "above": "fast"})
    assert refused.status_code == 400
    assert "above: a time is a number and a unit" in refused.json()["error"]["message"]


def test_a_channels_address_is_never_shown_again(client: TestClient) -> None:
    body = {"url": "https://hooks.example/services/T0/B0/hidden", "secret": "hush"}
    assert client.put("/api/v1/channels/hook", json=body).json()["signed"] is True
    text = client.get("/api/v1/channels").text
    assert "hooks.example" in text
    assert "hidden" not in text
    assert "hush" not in text


def test_markers_are_told_and_listed(client: TestClient) -> None:
    made = client.post("/api/v1/markers", json={"text": "new router", "time": "2026-09-21T20:15:00Z"})
    assert made.status_code == 201
    (marker,) = client.get("/api/v1/markers").json()["markers"]
    assert (marker["text"], marker["source"], marker["time_ms"]) == ("new router", "api", 1_790_021_700_000)


def test_empty_lists_and_unknown_ids(client: TestClient) -> None:
    assert client.get("/api/v1/alerts").json() == {"alerts": [], "total": 0, "next": None}
    assert client.get("/api/v1/changes").json() == {"changes": [], "total": 0, "next": None, "series": []}
    assert client.get("/api/v1/slos").json() == {"slos": [], "total": 0, "next": None}
    assert client.post("/api/v1/alerts/none/acknowledge").status_code == 404
    assert client.get("/api/v1/changes/none").status_code == 404


def test_writing_needs_an_admin_token(store: Store, settings: ServerSettings) -> None:
    from tailtrace.ingest.tokens import TokenFile, tokens_file

    guarded = settings.model_copy(update={"token": "owner"})
    reader = TokenFile(tokens_file(guarded)).create("reader", ["read"])
    with TestClient(create_app(store, guarded), base_url="http://127.0.0.1") as client:
        rule = {"kind": "regression"}
        as_reader, as_owner = ({"authorization": f"Bearer {token}"} for token in (reader, "owner"))
        assert client.get("/api/v1/rules", headers=as_reader).status_code == 200
        assert client.put("/api/v1/rules/x", json=rule, headers=as_reader).status_code == 403
        assert client.put("/api/v1/rules/x", json=rule, headers=as_owner).status_code == 200

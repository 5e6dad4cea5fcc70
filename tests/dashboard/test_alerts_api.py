"""Rules, channels, markers and alerts by the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from seeding import SECOND, T0, insert_requests, request
from starlette.testclient import TestClient

from tailtrace.analytics.alerting import book
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


def test_a_channel_is_changed_without_repeating_what_is_never_shown(client: TestClient, store: Store) -> None:
    made = client.post("/api/v1/channels", json={"name": "hook", "url": "https://hooks.example/hidden", "secret": "k"})
    assert (made.status_code, made.json()["fixed"]) == (201, False)
    assert client.post("/api/v1/channels", json={"name": "hook", "url": "https://x.example"}).status_code == 400
    kept = client.put("/api/v1/channels/hook", json={"secret": "other"}).json()
    assert (kept["url"], kept["signed"]) == ("https://hooks.example...", True)
    channel = book.load(store, None).channels["hook"]
    assert (channel.url, channel.secret) == ("https://hooks.example/hidden", "other")
    assert client.put("/api/v1/channels/other", json={"kind": "apprise"}).status_code == 400
    moved = client.put("/api/v1/channels/hook", json={"kind": "apprise", "url": "slack://a/b/c"}).json()
    assert (moved["url"], moved["signed"]) == ("slack://...", False)
    assert client.delete("/api/v1/channels/hook").status_code == 204


def test_a_rule_is_made_once_checked_and_read_back(client: TestClient) -> None:
    rule = {"name": "fast", "kind": "slo", "sli": "ttft", "objective": 0.99, "within": "2s"}
    checked = client.post("/api/v1/rules/check", json=rule)
    assert (checked.status_code, checked.json()["min_n"]) == (200, 100)
    assert client.get("/api/v1/rules/fast").status_code == 404
    assert client.post("/api/v1/rules", json=rule).status_code == 201
    again = client.post("/api/v1/rules", json=rule)
    assert (again.status_code, "PUT changes it" in again.json()["error"]["message"]) == (400, True)
    assert client.get("/api/v1/rules/fast").json() == {**checked.json(), "fixed": False}
    assert [each["name"] for each in client.get("/api/v1/rules?kind=slo").json()["rules"]] == ["fast"]
    assert client.get("/api/v1/rules/fast/states").json() == {"states": [], "total": 0, "next": None}
    nameless = client.post("/api/v1/rules", json={"kind": "regression"})
    assert (nameless.status_code, "name: " in nameless.json()["error"]["message"]) == (400, True)
    assert client.post("/api/v1/rules", json={"name": "a/b"}).status_code == 400


def test_objectives_stand_with_their_budget_windows_and_hours(client: TestClient, store: Store) -> None:
    """Two hundred requests of an hour, one in twenty too slow: five times the budget of 99 %."""
    insert_requests(
        store,
        [request(n, duration_ns=(3 if n % 20 == 0 else 1) * SECOND, end_ns=T0 + n * 10 * SECOND) for n in range(200)],
    )
    client.put("/api/v1/rules/fast", json={"kind": "slo", "sli": "duration", "objective": 0.99, "within": "2s"})
    (slo,) = client.get("/api/v1/slos").json()["slos"]
    assert (slo["rule"], slo["service"], slo["limits_ns"], slo["n"]) == ("fast", "api", {"duration": 2 * SECOND}, 200)
    assert (round(slo["good"], 3), round(slo["budget_left"], 3)) == (0.95, -4.0)
    assert [(each["limit"], each["firing"]) for each in slo["burns"]] == [(14.4, False), (6.0, False), (1.0, True)]
    assert (slo["state"], slo["telemetry"], slo["hours"]) == ("firing", "no_telemetry", None)
    whole = client.get("/api/v1/slos/fast?service=api").json()
    assert sum(each["n"] for each in whole["hours"]) == 200
    assert sum(each["bad"] for each in whole["hours"]) == 10
    assert client.get("/api/v1/slos/none?service=api").status_code == 404
    assert client.get("/api/v1/slos/regressions?service=api").status_code == 400


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

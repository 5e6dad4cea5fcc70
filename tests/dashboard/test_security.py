"""Token, host, origin, headers."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.dashboard.login import local_path
from tailtrace.errors import ConfigError
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.ingest.tokens import TokenFile, tokens_file

TOKEN = "correct horse"


def client_of(store: Store, settings: ServerSettings, **changes: object) -> TestClient:
    return TestClient(
        create_app(store, settings.model_copy(update=changes)), base_url="http://127.0.0.1:8050", follow_redirects=False
    )


def test_a_token_is_asked_for_everywhere(store: Store, settings: ServerSettings) -> None:
    client = client_of(store, settings, token=TOKEN)
    for path in ("/api/v1/requests", "/api/v1/nothing", "/_dash-layout", "/_dash-dependencies", "/assets/tokens.css"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
    assert client.post("/_dash-update-component", json={}).status_code == 401
    assert client.post("/api/v1/sql", json={"sql": "SELECT 1"}).status_code == 401
    page = client.get("/requests?text=a%26b")
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2Frequests%3Ftext%3Da%2526b")


def test_bearer_or_cookie_opens(store: Store, settings: ServerSettings) -> None:
    client = client_of(store, settings, token=TOKEN)
    assert client.get("/api/v1/requests", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/api/v1/requests", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.post("/login", data={"token": "wrong"}).status_code == 401
    answer = client.post("/login?next=%2Frequests", data={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/requests")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert TOKEN not in cookie
    assert client.get("/api/v1/requests").status_code == 200


def test_a_token_that_may_only_send_is_told_so(store: Store, settings: ServerSettings) -> None:
    sender = TokenFile(tokens_file(settings)).create("sender", ["ingest"])
    answer = client_of(store, settings, token=TOKEN).post("/login", data={"token": sender})
    assert answer.status_code == 403
    assert "may send telemetry, not read it" in answer.text


def test_health_without_the_token_says_only_that_it_lives(store: Store, settings: ServerSettings) -> None:
    client = client_of(store, settings, token=TOKEN)
    assert set(client.get("/api/v1/health").json()) == {"status", "version"}


def test_login_leads_nowhere_else() -> None:
    assert local_path("/requests?a=1") == "/requests?a=1"
    for target in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\r\nb: c",
        "",
    ):
        assert local_path(target) == "/"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", ""])
def test_names_that_could_be_rebound_are_refused(store: Store, settings: ServerSettings, host: str) -> None:
    answer = client_of(store, settings).get("/api/v1/requests", headers={"host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:8050", "[::1]:8050", "10.1.2.3", "tailtrace.localhost"])
def test_addresses_and_localhost_are_answered(store: Store, settings: ServerSettings, host: str) -> None:
    assert client_of(store, settings).get("/api/v1/health", headers={"host": host}).status_code == 200


def test_other_sites_pages_cannot_post(store: Store, settings: ServerSettings) -> None:
    client = client_of(store, settings)
    foreign = client.post("/api/v1/sql", json={"sql": "SELECT 1"}, headers={"origin": "https://evil.example"})
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "foreign_origin")
    assert (
        client.post("/api/v1/sql", json={"sql": "SELECT 1"}, headers={"origin": "http://127.0.0.1:8050"}).status_code
        == 200
    )


def test_an_open_address_needs_a_token(store: Store, settings: ServerSettings) -> None:
    client = client_of(store, settings, host="0.0.0.0")
    with pytest.raises(ConfigError, match="TAILTRACE_TOKEN"):
        client.get("/")
    assert client_of(store, settings, host="0.0.0.0", insecure=True).get("/api/v1/health").status_code == 200


def test_pages_keep_to_themselves(store: Store, settings: ServerSettings) -> None:
    answer = client_of(store, settings).get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "connect-src 'self'" in policy
    assert "'unsafe-eval'" not in policy
    assert "script-src 'self' 'sha256-" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_bundles_are_compressed_and_kept(store: Store, settings: ServerSettings) -> None:
    client = client_of(store, settings)
    plain = client.get("/assets/e_waterfall_view.js", headers={"accept-encoding": "identity"})
    packed = client.get("/assets/e_waterfall_view.js", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.text == plain.text
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    assert client.get("/assets/nothing.js", headers={"accept-encoding": "gzip"}).status_code == 404

"""A view's queries have its id: they can be stopped, asked about, and stop by themselves when the page is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from dashboard_stores import Down, SlowFirst
from draw_question import draw_question
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.dashboard.views import NamedStore, progress, stop, use_view, was_stopped
from tailtrace.errors import StoreError
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

Serve = Callable[..., str]
ENDLESS = "SELECT sum(sleepEachRow(0.05)) AS n FROM numbers({many:UInt64})"  # as all of ours, with parameters


def test_a_running_view_is_seen_and_stopped(store: Store) -> None:
    named, failed = NamedStore(store), []

    def ask() -> None:
        use_view("view-1")
        try:
            named.query(
                ENDLESS,
                {"many": 100_000},
                settings={"function_sleep_max_microseconds_per_block": 10**12, "max_block_size": 10},
            )
        except StoreError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not progress(store, "view-1").running:
        assert thread.is_alive()
    assert progress(store, "view-2").running == 0
    stop(store, "view-1")
    thread.join(60)
    assert len(failed) == 1
    assert was_stopped(failed[0])
    assert progress(store, "view-1").running == 0


def test_ids_that_could_be_more_than_ids_are_refused(store: Store, settings: ServerSettings) -> None:
    client = TestClient(create_app(store, settings), base_url="http://127.0.0.1")
    assert client.get("/api/v1/views/abc-1").json()["running"] == 0
    assert client.delete("/api/v1/views/abc-1").status_code == 204
    for bad in ("a'b", "a%20b", "%25", "x" * 65):
        assert client.get(f"/api/v1/views/{bad}").status_code == 400
        assert client.delete(f"/api/v1/views/{bad}").status_code == 400
    use_view("*/ DROP")
    assert NamedStore(store).query("SELECT 1 AS n") == [{"n": 1}]


def test_until_the_first_answer_the_page_has_its_shape(seeded: Store, serve: Serve, page: Any) -> None:
    slow = SlowFirst(seeded)
    page.goto(serve(slow) + "/requests?service=gateway", wait_until="commit")
    page.locator("#body .tt-skeleton i").nth(3).wait_for()
    assert page.locator("#showing").count() == 0
    slow.go.set()
    page.locator("#showing").filter(has_text="1 of 1").wait_for()
    assert page.locator(".tt-skeleton").count() == 0


def test_leaving_a_page_stops_it_and_waiting_is_told(seeded: Store, serve: Serve, page: Any) -> None:
    slow = SlowFirst(seeded)
    page.goto(serve(slow) + "/requests")
    page.locator("#showing").filter(has_text="50 of 121").wait_for()
    page.evaluate("tailtrace.go('/requests?service=gateway')")
    assert slow.waiting.wait(20)
    page.locator("#tt-progress:not([hidden])").wait_for()
    assert page.locator("#tt-progress button").inner_text() == "Cancel"
    with page.expect_request(lambda one: one.method == "DELETE" and "/api/v1/views/" in one.url):
        page.evaluate("tailtrace.go('/requests?service=api')")
    page.locator("#showing").filter(has_text="50 of 120").wait_for()
    slow.go.set()


def test_a_store_that_is_away_is_said_and_tried_again(seeded: Store, serve: Serve, page: Any) -> None:
    down = Down(seeded)
    page.goto(serve(down) + "/requests")
    page.get_by_text("the database is away").wait_for()
    down.down = False
    page.get_by_role("button", name="Try again").click()
    page.locator("#showing").filter(has_text="50 of 121").wait_for()


def test_a_server_that_is_away_is_said(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/health")
    page.locator("#body h1").wait_for()
    page.route("**/_dash-update-component**", lambda route: route.abort())
    page.evaluate("tailtrace.go('/settings')")
    page.locator("#tt-away").wait_for()
    page.unroute("**/_dash-update-component**")
    page.locator("#tt-away button").click()
    page.locator("h1", has_text="Settings").wait_for()
    page.locator("#tt-away").wait_for(state="detached")


def test_an_ended_session_leads_to_the_login_and_back(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded, token="open sesame") + "/requests")
    page.get_by_label("Token").fill("open sesame")
    page.keyboard.press("Enter")
    page.locator("#showing").wait_for()
    page.locator("#fresh *").first.wait_for()  # it is asked for after the page
    page.context.clear_cookies()
    page.evaluate("tailtrace.go('/requests?order=slowest')")
    page.get_by_label("Token").wait_for()
    assert page.url.endswith("/login?next=%2Frequests%3Forder%3Dslowest")


@pytest.mark.parametrize("path", ["/", "/requests", "/health", "/rules"])
def test_four_workers_share_nothing(seeded: Store, settings: ServerSettings, path: str) -> None:
    """The same question to four applications over one store: each answers alone, and alike."""
    apps = [create_app(seeded, settings) for _ in range(4)]
    bodies = []
    for app in apps:
        with TestClient(app, base_url="http://127.0.0.1") as client:
            question = draw_question(client, path)
            answer = client.post("/_dash-update-component", json=question)
            assert answer.status_code == 200
            bodies.append(answer.json()["response"]["body"])
    assert all(body == bodies[0] for body in bodies)

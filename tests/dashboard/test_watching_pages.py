"""Rules, channels, SLOs and alerts in the browser: made, changed, removed; what a reader without the right sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dashboard_seed import HOSTILE
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.ingest.tokens import TokenFile, tokens_file

Serve = Callable[..., str]
ALERT = """
INSERT INTO alerts (Id, Rule, Cause, State, OpenedAt, Summary, Body, Revision) VALUES
  ('e1', 'p95', 'c', 'open', '2026-09-21 14:00:00', 'P95 of api is 40 % slower', {body:String}, 1)
"""
BODY = """{"service": "api", "metric": "duration", "before": {"ns": 100000000, "n": 5000}, "after": {"ns": 140000000,
"n": 900}, "change_ns": 40000000, "interval_ns": [35000000, 45000000], "traffic_share": 0.05,
"stages": [{"stage": "queue", "before_ns": 10000000, "after_ns": 50000000, "share": 0.97}],
"examples": [{"trace_id": "00000000000000000000000000000001", "start_unix_ns": "1790000000000000000",
"duration_ns": 140000000}], "links": {"requests": "http://elsewhere.example/requests?service=api"}}"""


def field(page: Any, name: str) -> Any:
    return page.locator(f".tt-edit input[name^='{name}:'], .tt-edit select[data-name^='{name}:']")


def test_a_rule_is_made_changed_and_removed(seeded: Store, serve: Serve, page: Any) -> None:
    address = serve(seeded)
    page.goto(address + "/rules")
    page.get_by_text("New: threshold").click()
    field(page, "name").fill("slow start")
    field(page, "above").fill("soon")
    page.get_by_role("button", name="Save").click()
    page.locator(".tt-edit [role=alert]", has_text="a time is a number and a unit").wait_for()
    field(page, "above").fill("1.5s")
    field(page, "metric").select_option("ttft")
    field(page, "q").fill("0.95")
    page.get_by_role("button", name="Save").click()
    row = page.locator("tbody tr", has_text="slow start")
    row.wait_for()
    assert "P95 of time to first token above 1.5s" in row.inner_text()
    row.get_by_role("link", name="slow start").click()
    page.get_by_text("Not once in the last 24 hours.").wait_for()
    field(page, "above").fill("2s")
    page.get_by_role("button", name="Save").click()
    page.locator("tbody tr", has_text="above 2s").wait_for()
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Delete").click()
    row.wait_for(state="detached")


def test_a_channel_is_made_and_its_secret_never_shown(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/channels")
    page.get_by_text("Nobody is told yet").wait_for()
    page.get_by_text("New channel").first.click()
    field(page, "name").fill("hook")
    field(page, "url").fill("https://hooks.example/services/T0B0")
    field(page, "secret").fill("hush")
    page.get_by_role("button", name="Save").click()
    row = page.locator("tbody tr", has_text="hook")
    row.wait_for()
    assert "signed" in row.inner_text()
    row.get_by_role("link", name="Change").click()
    field(page, "url_env").wait_for()
    assert "T0B0" not in page.content()
    assert "hush" not in page.content()


def test_an_objective_shows_its_budget(seeded: Store, settings: ServerSettings, serve: Serve, page: Any) -> None:
    rule = {"kind": "slo", "name": "fast", "service": "api", "sli": "duration", "objective": 0.9, "within": "200ms"}
    client = TestClient(create_app(seeded, settings), base_url="http://127.0.0.1")
    assert client.post("/api/v1/rules", json=rule).status_code == 201
    page.goto(serve(seeded) + "/slos")
    row = page.locator("tbody tr", has_text="fast").first
    row.wait_for()
    assert "90 % duration ≤ 200 ms" in row.inner_text()
    assert "82.5 %" in row.inner_text()  # 21 of 120 are above 200 ms, to within the 2 % of a bucket
    assert "-75 %" in row.inner_text()
    page.locator(".js-plotly-plot").wait_for()


def test_an_alert_shows_its_evidence_and_is_acknowledged(seeded: Store, serve: Serve, page: Any) -> None:
    seeded.command(ALERT, {"body": BODY})
    page.goto(serve(seeded) + "/alerts")
    page.get_by_text("P95 of api is 40 % slower").click()
    page.get_by_text("Stages among like requests").wait_for()
    evidence = page.locator(".tt-conditions").inner_text()
    assert "+40.0 ms" in evidence
    assert "+35.0 ms … +45.0 ms" in evidence
    assert page.locator(".tt-pair", has_text="queue").count() == 1
    assert page.locator("a[href='/requests?service=api']").count() == 1
    page.get_by_role("button", name="Mute 1h").click()
    page.get_by_role("button", name="Unmute").wait_for()
    page.get_by_role("button", name="Acknowledge").click()
    page.locator(".tt-tag", has_text="acknowledged").wait_for()


def test_who_may_only_read_sees_no_buttons_and_why(
    seeded: Store, settings: ServerSettings, serve: Serve, page: Any
) -> None:
    seeded.command(ALERT, {"body": BODY})
    guarded = settings.model_copy(update={"token": "owner"})
    reader = TokenFile(tokens_file(guarded)).create("reader", ["read"])
    page.goto(serve(seeded, token="owner") + "/rules")
    page.get_by_label("Token").fill(reader)
    page.keyboard.press("Enter")
    page.locator("#body h1").first.wait_for()
    for path in ("/rules", "/rules?kind=slo", "/channels?state=new", "/slos", "/alerts", "/alerts?id=e1"):
        page.evaluate(f"tailtrace.go({path!r})")
        page.wait_for_url(f"**{path}")
        page.locator("#body[data-dash-is-loading]").wait_for(state="detached")
        page.get_by_text("Your token only reads").wait_for()
        assert page.locator("button[data-post], form[data-send]").count() == 0, path


def test_hostile_names_stay_text(seeded: Store, settings: ServerSettings, serve: Serve, page: Any) -> None:
    seeded.command(ALERT.replace("P95 of api is 40 % slower", HOSTILE), {"body": BODY.replace("queue", HOSTILE[:10])
                   .replace('"api"', '"<img src=x onerror=window.hacked=1>"')})  # fmt: skip
    client = TestClient(create_app(seeded, settings), base_url="http://127.0.0.1")
    marker = {"text": "<b>x</b><img src=x onerror=window.hacked=1>", "service": "api", "time": "2026-09-21T14:12:00Z"}
    assert client.post("/api/v1/markers", json=marker).status_code == 201
    address = serve(seeded)
    for path in ("/", "/requests?service=api", "/regressions", "/alerts", "/alerts?id=e1", "/rules?id=%3Cb%3E"):
        page.goto(address + path)
        page.locator("#body h1").first.wait_for()
        page.locator("#body[data-dash-is-loading]").wait_for(state="detached")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img[src=x]").count() == 0
    page.goto(address + "/")
    page.locator(".annotation-text", has_text="<b>x</b>").first.wait_for()

"""Rules, channels, SLOs and alerts in the browser: made, changed, removed; what a reader without the right sees; and
every page over hostile telemetry.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dashboard_seed import HOSTILE, TRACE
from hostile_seed import fill_hostile
from seeding import SECOND, T0
from starlette.testclient import TestClient

from tailtrace.dashboard import create_app
from tailtrace.dashboard.pages import NAVIGATION
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
"verdicts": [{"cause": "kv_full", "confidence": "high", "share": 0.8, "evidence": [{"metric":
"KV blocks used while requests wait", "value": 0.97, "threshold": 0.9, "source": "vLLM"}]}],
"examples": [{"trace_id": "00000000000000000000000000000001", "start_unix_ns": "1790000000000000000",
"duration_ns": 140000000}], "links": {"requests": "http://elsewhere.example/requests?service=api"}}"""
NAME = quote(HOSTILE)
PAGES = (
    *(f"{one.path}?service={NAME}" for one in NAVIGATION),
    f"/requests?service={NAME}&box={T0 - 90 * SECOND},{T0 - 30 * SECOND},0,{10 * SECOND}",
    f"/requests?text={NAME}&model={NAME}&columns=model,version,replica,tenant,request&facets={NAME}",
    f"/requests/{TRACE}?span={3:016x}",
    f"/requests/{1:032x}",
    "/alerts?id=e",
    f"/alerts?id={NAME}&state={NAME}",
    f"/rules?id={NAME}&kind={NAME}",
    f"/what-if?service={NAME}&x_queue={NAME}&order={NAME}&since={NAME}",
)
# These show nothing of what a sender chose.
SILENT = (
    f"/channels?service={NAME}",
    f"/channels?id={NAME}",
    f"/settings?service={NAME}",
    f"/requests/{NAME}",
    f"/compare?service={NAME}&a_filter=model%3D{NAME}&b_filter=tenant%3D{NAME}",
    f"/{NAME}",
)


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
    assert "−75 %" in row.inner_text()
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
    cause = page.locator(".tt-panel", has_text="the KV cache is full")
    assert "KV blocks used while requests wait" in cause.inner_text()
    assert page.locator("a[href='/requests?service=api']").count() == 1
    page.get_by_role("button", name="Mute 1h").click()
    page.get_by_role("button", name="Unmute").wait_for()
    page.get_by_role("button", name="Acknowledge").click()
    page.locator(".tt-tag", has_text="acknowledged").wait_for()


def test_alerts_are_listed_by_state(seeded: Store, serve: Serve, page: Any) -> None:
    seeded.command(ALERT, {"body": BODY})
    old = "('e2', 'p95', 'd', 'resolved', '2026-09-20 14:00:00', 'P95 of gateway was slower', {body:String}, 1)"
    seeded.command(ALERT.split("VALUES")[0] + f"VALUES {old}", {"body": BODY})
    page.goto(serve(seeded) + "/alerts")
    found = page.locator(".tt-finding")
    found.nth(1).wait_for()
    states = page.locator(".tt-filters label")
    past, now = found.filter(has_text="P95 of gateway was slower"), found.filter(has_text="P95 of api is 40 % slower")
    for state, shown, hidden in (("over", past, now), ("open", now, past)):
        states.filter(has_text=re.compile(f"^{state}$")).click()
        hidden.wait_for(state="detached")
        shown.wait_for()
    assert "state=open" in page.url
    states.filter(has_text="acknowledged").click()
    page.locator("#body h2", has_text="No alert").wait_for()
    page.reload()
    page.locator("#body h2", has_text="No alert").wait_for()
    states.filter(has_text="All").click()
    found.nth(1).wait_for()
    assert "state=" not in page.url


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


def test_hostile_text_stays_text_on_every_page(
    store: Store, settings: ServerSettings, serve: Serve, page: Any, tmp_path: Path
) -> None:
    fill_hostile(store, tmp_path)
    client = TestClient(create_app(store, settings), base_url="http://127.0.0.1")
    rule = {"kind": "slo", "name": "fast", "service": HOSTILE, "sli": "duration", "objective": 0.9, "within": "1s"}
    assert client.post("/api/v1/rules", json=rule).status_code == 201
    address, silent = serve(store), set()
    for path in dict.fromkeys((*PAGES, *SILENT)):
        page.goto(address + path)
        page.locator("#body h1").first.wait_for()
        page.locator("#body[data-dash-is-loading], .tt-loading-later").first.wait_for(state="detached")
        assert page.evaluate("window.hacked") is None, path
        assert page.locator("img[src=x], a[href^='javascript:']").count() == 0, path
        if not page.evaluate("document.body.innerText.includes('<img src=x')"):
            silent.add(path)
    assert silent == set(SILENT)
    # A chart's words know tags of their own.
    page.goto(f"{address}/?service={NAME}")
    page.locator(".tt-note", has_text="<img src=x").first.wait_for()

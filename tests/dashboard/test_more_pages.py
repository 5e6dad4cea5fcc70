"""Every page in both languages and themes, the list's box, facets, columns, saved views and live tail, export, zones;
no serious axe finding.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from dashboard_seed import HOSTILE, MS, TRACE
from seeding import SECOND, T0, insert_requests, request
from starlette.testclient import TestClient

from tailtrace.analytics.queries.export import safe
from tailtrace.dashboard import create_app
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.pages import NAVIGATION
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

Serve = Callable[..., str]
SERVICE = {"diagnosis", "compare", "whatif", "gpus", "replicas"}


def drawn(page: Any) -> None:
    page.locator("#body h1").first.wait_for()
    page.locator("#body[data-dash-is-loading]").wait_for(state="detached")


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("zh", "dark")])
def test_every_page_draws(seeded: Store, serve: Serve, page: Any, language: str, scheme: str) -> None:
    address, text = serve(seeded), Text(language)
    page.emulate_media(color_scheme=scheme)
    page.context.add_cookies([{"name": "tailtrace_language", "value": language, "url": address}])
    for one in NAVIGATION:
        page.goto(address + one.path)
        drawn(page)
        assert page.locator("h1").first.inner_text() == text(f"nav.{one.key}"), one.key
        assert page.get_by_role("alert").count() == 0, one.key
        assert page.locator(".tt-nav-link.is-current").inner_text() == text(f"nav.{one.key}")
    assert page.evaluate("window.hacked") is None


def test_a_box_on_the_heatmap_is_compared_with_the_rest(seeded: Store, serve: Serve, page: Any) -> None:
    box = f"{T0 - 121 * SECOND},{T0 - 60 * SECOND},0,{10 * SECOND}"
    page.goto(serve(seeded) + f"/requests?service=api&box={box}")
    panel = page.locator("#box")
    panel.wait_for()
    assert "60 requests in the box against 60 others" in panel.inner_text()
    assert "queue" in panel.inner_text()
    panel.get_by_text("Only these").click()
    page.locator("#showing").filter(has_text="of 60").wait_for()
    page.go_back()
    panel.get_by_text("Remove the box").click()
    panel.wait_for(state="detached")
    assert "box=" not in page.url


def test_facets_narrow_and_open_again(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests")
    page.locator(".tt-facet", has_text="gateway").click()
    page.locator("#showing").filter(has_text="1 of 1").wait_for()
    page.locator(".tt-facet.is-on", has_text="gateway").click()
    page.locator("#showing").filter(has_text="50 of 121").wait_for()


def test_columns_are_chosen_and_kept_in_the_address(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests?service=api&columns=tenant,duration,nothing")
    heads = page.locator("thead th")
    heads.nth(2).wait_for()
    assert heads.all_inner_texts() == ["Start", "Duration", "Tenant"]
    page.locator(".tt-columns-choice .mantine-MultiSelect-input").click()
    page.get_by_role("option", name="Model").click()
    heads.filter(has_text="Model").wait_for()
    assert heads.all_inner_texts() == ["Start", "Model", "Duration", "Tenant"]
    assert page.locator("tbody tr").first.locator("td").nth(1).inner_text() == "m"
    page.reload()
    heads.filter(has_text="Model").wait_for()


def test_a_view_is_saved_opened_and_removed(seeded: Store, serve: Serve, page: Any) -> None:
    address = serve(seeded)
    page.goto(address + "/requests?order=slowest&min=200ms&cursor=")
    page.locator("#showing").filter(has_text="21 of 21").wait_for()
    page.get_by_text("Saved views").click()
    page.get_by_text("None yet; they are kept in this browser.").wait_for()
    page.get_by_placeholder("Name of this view").fill(HOSTILE)
    page.get_by_role("button", name="Save this view").click()
    page.goto(address + "/requests")
    page.locator("#showing").filter(has_text="50 of 121").wait_for()
    page.get_by_text("Saved views").click()
    page.locator(".tt-saved-row a", has_text=HOSTILE).click()
    page.locator("#showing").filter(has_text="21 of 21").wait_for()
    assert page.url == address + "/requests?order=slowest&min=200ms"
    assert page.evaluate("window.hacked") is None
    row = page.locator(".tt-saved-row", has_text=HOSTILE)
    if not row.is_visible():
        page.get_by_text("Saved views").click()
    row.get_by_role("button").click()
    row.wait_for(state="detached")
    page.reload()
    page.get_by_text("Saved views").click()
    page.get_by_text("None yet; they are kept in this browser.").wait_for()


def test_the_live_tail_shows_what_arrives(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests?service=api")
    page.locator("#showing").filter(has_text="50 of 120").wait_for()
    page.get_by_label("Refresh").first.click()
    page.get_by_role("option", name="Live tail").click()
    insert_requests(seeded, [request(500, duration_ns=MS, end_ns=T0 + SECOND)])
    page.locator("#showing").filter(has_text="50 of 121").wait_for()
    assert page.locator("tbody tr").first.get_attribute("data-href") == f"/requests/{500:032x}"


def test_any_stage_sorts_and_attributes_are_searched(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests?order=queue&service=api")
    page.locator("#showing").wait_for()
    assert page.locator("tbody tr").first.locator("td").nth(1).inner_text() == "120 ms"
    page.goto(page.url.split("?")[0] + "?where=tailtrace.stage%3Dauth")
    page.locator("#showing").filter(has_text="1 of 1").wait_for()


def test_times_follow_the_chosen_zone(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/settings")
    page.get_by_role("button", name="Asia/Shanghai").click()
    page.locator(".tt-zone", has_text="Asia/Shanghai").wait_for()
    page.goto(page.url.replace("/settings", "/requests?service=gateway"))
    page.locator("tbody tr").first.wait_for()
    assert page.locator("tbody tr").first.locator("td").first.inner_text().startswith("22:13:20")
    assert page.evaluate("tailtrace.addressTime('2026-09-21 22:13:20')") == "2026-09-21T14:13:20Z"
    assert page.evaluate("tailtrace.pickerTime('1790000000000000000')") == "2026-09-21 22:13:20"


def test_a_chart_is_a_table_too(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/")
    page.locator(".tt-graph > svg").first.wait_for()
    button = page.locator(".tt-as-table").first
    button.focus()
    page.keyboard.press("Enter")
    page.locator(".tt-chart-table td").first.wait_for()
    assert button.get_attribute("aria-expanded") == "true"


def test_the_request_page_tells_its_rank_and_exports(seeded: Store, serve: Serve, page: Any) -> None:
    address = serve(seeded)
    page.goto(address + f"/requests/{1:032x}")
    page.get_by_text("0.0 % of 120 like requests were faster").wait_for()
    events = page.request.get(f"{address}/api/v1/requests/{TRACE}/chrome").json()["traceEvents"]
    assert [one["name"] for one in events if one["ph"] == "X"] == [HOSTILE, "auth", "queue", "decode"]
    assert [one["dur"] for one in events if one["ph"] == "X"] == [100_000, 10_000, 20_000, 60_000]


def test_exports_hold_all_rows_and_run_nothing(seeded: Store, settings: ServerSettings) -> None:
    client = TestClient(create_app(seeded, settings), base_url="http://127.0.0.1:8050")
    answer = client.get("/api/v1/requests/export?order=slowest&service=api")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert (len(rows), answer.headers["x-tailtrace-total"]) == (120, "120")
    assert (rows[0]["duration_ns"], rows[0]["queue_ns"]) == ("220000000", "120000000")
    lines = client.get("/api/v1/requests/export?format=json&service=gateway").text.splitlines()
    assert len(lines) == 1
    assert [safe(value) for value in ("=1+1", "@x", "-2", "ok", None, -2)] == ["'=1+1", "'@x", "'-2", "ok", "", -2]


def test_addresses_keep_their_state() -> None:
    address = Address.parse("?service=a%26b&box=1,2,3,4&x_decode=0.5&unknown=1")
    assert address.href("/what-if") == "/what-if?service=a%26b&box=1%2C2%2C3%2C4&x_decode=0.5"


@pytest.mark.skipif(find_spec("axe_playwright_python") is None, reason="needs axe-playwright-python")
def test_axe_finds_nothing_serious(seeded: Store, settings: ServerSettings, serve: Serve, page: Any) -> None:
    package = find_spec("axe_playwright_python")
    assert package is not None
    assert package.submodule_search_locations is not None
    source = next(Path(package.submodule_search_locations[0]).rglob("axe.min.js")).read_text()
    rule = {"kind": "slo", "name": "fast", "service": "api", "sli": "duration", "objective": 0.9, "within": "1s"}
    client = TestClient(create_app(seeded, settings), base_url="http://127.0.0.1")
    assert client.post("/api/v1/rules", json=rule).status_code == 201
    address = serve(seeded)
    found = []
    forms = ("/rules?kind=slo", "/rules?id=fast", "/channels?state=new", f"/requests/{TRACE}?span={3:016x}", "/nowhere")
    for at, path in enumerate([*(one.path for one in NAVIGATION), *forms]):
        page.emulate_media(color_scheme=("light", "dark")[at % 2], reduced_motion="reduce")
        page.goto(address + path)
        drawn(page)
        page.evaluate(source + "; void 0")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.locator(f"html[data-mantine-color-scheme={scheme}]").wait_for()
            answer = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa']})")
            found += [
                (scheme, path, one["id"], node["html"][:160])
                for one in answer["violations"]
                if one["impact"] in ("serious", "critical")
                for node in one["nodes"]
            ]
    assert found == [], found[:20]

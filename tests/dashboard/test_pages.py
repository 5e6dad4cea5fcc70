"""The pages in a real browser: content, addresses, history, nothing leaves the machine, hostile text stays text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dashboard_seed import HOSTILE, TRACE, Spans, spans_of
from dashboard_stores import SlowFirst
from seeding import insert_requests, insert_traces, request
from slower_seed import DAY, fill_slower

from tailtrace.dashboard.components.figures import CONFIG
from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import encode_traces

Serve = Callable[..., str]


def test_overview_says_what_is_slow(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded))
    sentence = page.locator(".tt-sentence", has_text="api")
    sentence.wait_for()
    assert "queue" in sentence.inner_text()
    assert page.locator(".tt-table tbody tr").count() == 2
    page.locator(".tt-graph > svg").nth(3).wait_for()
    assert page.locator(".tt-graph > svg").count() == 4
    assert page.locator(".modebar-btn").count() == 0
    page.locator("text=times in UTC").wait_for()
    assert page.locator("h2.tt-section").inner_text() == "api"
    assert page.locator(".tt-badge.is-simulated").count() >= 2


def test_what_is_in_trouble_since_when_and_why(store: Store, serve: Serve, page: Any) -> None:
    fill_slower(store)
    page.goto(serve(store) + "/?service=api")
    sentences = page.locator(".tt-sentences .tt-sentence")
    sentences.nth(1).wait_for()
    first, second = sentences.nth(0), sentences.nth(1)
    assert "is-trouble" in (first.get_attribute("class") or "")
    assert "is-trouble" not in (second.get_attribute("class") or "")
    assert second.inner_text().startswith("● b:")  # busier, but nothing is wrong with it
    told = first.inner_text()
    assert told.startswith("▲ api:")
    assert "Duration is slower since 2026-09-21 13:40. queue makes 97 % of it." in told
    assert re.search(r"P95 1(09|10|11) ms → (89|90|91)\.\d s against the same hours yesterday", told)

    def panel(title: str) -> Any:
        return page.get_by_role("region", name=title, exact=True)

    bars = panel("Median and tail by stage").locator(".tt-split-row")
    assert [words.split("\n")[0] for words in bars.all_inner_texts()] == ["P50", "P99"]
    median, tail = (bars.nth(at).locator(".tt-bar") for at in (0, 1))
    assert re.fullmatch(r"decode .* ms \(90 %\), unexplained .* \(10 %\)", median.get_attribute("aria-label"))
    assert re.match(r"queue .* s \(100 %\), decode ", tail.get_attribute("aria-label"))
    assert median.bounding_box()["width"] < 0.02 * tail.bounding_box()["width"]

    row = panel("Against the same hours yesterday").locator("tbody tr")
    row.wait_for()
    assert re.search(r"api · m.*1(09|10|11) ms → (89|90|91)\.\d s.*▲.*queue \+(89|90|91)\.\d s", row.inner_text(), re.S)
    query = parse_qs(urlsplit(row.get_by_role("link", name="Compare").get_attribute("href")).query)
    assert int(query["since"][0]) - int(query["a_since"][0]) == DAY
    assert "Nothing is stored from then." in panel("Against the same hours last week").inner_text()

    # A quarter of the time it works; 40 s of the hour nobody waits.
    waiting = panel("GPU time").locator(".tt-sentence")
    waiting.wait_for()
    words = r"74 % of GPU time was idle while requests waited: more work arrives than the engine can do \d+ %"
    assert re.match(words, waiting.inner_text())

    drawn = panel("Time per output token").locator(".tt-graph")
    drawn.locator("svg").first.wait_for()
    medians = drawn.evaluate("node => Array.from(node.data[0].y).filter(one => one !== null)")
    assert len(medians) > 50
    assert all(4.9 < one < 5.1 for one in medians)


def test_no_chart_can_be_sent_to_a_cloud() -> None:
    assert (CONFIG["showSendToCloud"], CONFIG["displaylogo"], CONFIG["displayModeBar"]) == (False, False, False)


def test_nothing_is_asked_of_another_host(seeded: Store, serve: Serve, page: Any) -> None:
    address = serve(seeded)
    for path, mark in (("/", ".tt-graph > svg"), ("/requests", ".tt-table"), (f"/requests/{TRACE}", ".tt-row")):
        page.goto(address + path)
        page.locator(mark).first.wait_for()
    hosts = {urlsplit(url).netloc for url in page.asked if not url.startswith(("data:", "blob:"))}
    assert hosts == {urlsplit(address).netloc}


def test_filters_live_in_the_address_and_back_undoes_them(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests")
    showing = page.locator("#showing")
    showing.filter(has_text="50 of 121").wait_for()
    page.get_by_label("Order").first.click()
    page.get_by_role("option", name="Slowest").click()
    page.wait_for_url("**order=slowest*")
    page.get_by_placeholder("Min, 500ms").fill("200ms")
    showing.filter(has_text="21 of 21").wait_for()
    assert "min=200ms" in page.url
    page.go_back()
    showing.filter(has_text="50 of 121").wait_for()
    assert page.get_by_placeholder("Min, 500ms").input_value() == ""
    page.go_back()
    page.wait_for_url(lambda url: "order" not in url)
    page.locator("tbody tr", has_text="gateway").first.wait_for()


def test_pages_follow_each_other_without_loading_anew(seeded: Store, serve: Serve, page: Any) -> None:
    """Controls of the page before are taken away each time, which once ended every callback."""
    page.goto(serve(seeded) + "/requests")
    page.locator("#showing").wait_for()
    page.evaluate("window.stays = true")
    for link, there in (
        ("/?round=1", ".tt-sentence"),
        ("/requests?round=2", "#showing"),
        ("/?round=3", ".tt-sentence"),
    ):
        page.evaluate("(link) => window.tailtrace.go(link)", link)
        page.locator(there).first.wait_for()
    assert page.evaluate("window.stays")


def test_a_control_that_waits_for_typing_does_not_say_again_what_it_was_given(
    seeded: Store, serve: Serve, page: Any
) -> None:
    page.goto(serve(seeded) + "/requests")
    page.locator("#showing").wait_for()
    page.evaluate("window.tailtrace.go('/requests?min=1ms')")
    page.locator("input[value='1ms']").wait_for()
    page.evaluate("window.tailtrace.go('/requests?order=slowest')")
    page.wait_for_timeout(1200)  # three times as long as such a control waits
    assert parse_qs(urlsplit(page.url).query) == {"order": ["slowest"]}


def test_an_opened_page_brings_its_first_drawing_with_it(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests")
    page.locator("#showing").wait_for()
    drawings = [
        one
        for one in page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
        if "_dash-update-component" in one
    ]
    assert len(drawings) <= 1  # how fresh the data are is asked for after the page
    html = page.request.get(serve(seeded) + "/requests").text()
    assert html.count('id="first-drawing"') == 1
    assert html.index("DashRenderer()") < html.index('id="first-drawing"')


def test_a_link_opens_the_same_view_elsewhere(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests?order=slowest&min=200ms&service=api")
    page.locator("#showing").filter(has_text="21 of 21").wait_for()
    assert page.get_by_placeholder("Min, 500ms").input_value() == "200ms"
    assert page.locator("tbody tr").first.locator("td").nth(4).inner_text() == "220 ms"


def test_pages_of_the_list(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests")
    page.get_by_text("Next page").click()
    page.get_by_text("First page").wait_for()
    page.get_by_text("Next page").click()
    page.locator("#showing").filter(has_text="21 of 121").wait_for()
    assert page.get_by_text("Next page").count() == 0


def test_an_empty_list_says_what_lies_outside(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + "/requests?service=api&since=2026-09-01&until=2026-09-02")
    page.get_by_text("120 match outside this range").wait_for()
    page.get_by_text("Search 30 days").click()
    page.locator("#showing").filter(has_text="50 of 120").wait_for()


def test_one_request_sums_to_its_duration(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + f"/requests/{TRACE}")
    page.locator(".tt-row").nth(3).wait_for()
    table = page.locator(".is-stage-table")
    assert [row.split("\n")[0] for row in table.locator("tbody tr").all_inner_texts()] != []
    assert "100 ms" in table.locator("tfoot").inner_text()
    assert "100 %" in table.locator("tfoot").inner_text()
    assert page.locator(".tt-bar-part.is-unexplained").count() == 1
    assert page.get_by_text("showing 4 of 4 spans").is_visible()


def test_a_span_is_selected_by_the_address(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + f"/requests/{TRACE}?span={3:016x}&zoom=5000000-50000000")
    page.locator(".tt-side td", has_text="<img src=x").wait_for()
    assert page.locator(".tt-row.is-selected").inner_text().startswith("queue")
    assert page.locator(".tt-ticks span").first.inner_text() == "5.00 ms"
    page.keyboard.press("j")
    page.wait_for_url(f"**span={4:016x}*")
    page.keyboard.press("f")
    page.wait_for_url(lambda url: "zoom" not in url)
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: "span=" not in url)


def test_hostile_text_stays_text(seeded: Store, serve: Serve, page: Any) -> None:
    address = serve(seeded)
    for path, mark in (
        ("/", ".tt-sentence"),
        ("/requests?service=gateway", "tbody tr"),
        (f"/requests/{TRACE}?span={3:016x}", ".tt-side td"),
    ):
        page.goto(address + path)
        page.locator(mark).first.wait_for()
        assert page.evaluate("window.hacked") is None
        assert page.locator("img[src=x]").count() == 0
    assert page.locator(".tt-name-text").first.inner_text() == HOSTILE


def test_unknown_requests_and_pages_say_so(seeded: Store, serve: Serve, page: Any) -> None:
    address = serve(seeded)
    page.goto(address + f"/requests/{'f' * 32}")
    page.get_by_text("This request is not here").wait_for()
    page.goto(address + "/nowhere")
    page.get_by_text("No such page").wait_for()


def test_first_run_shows_how_to_send_and_ends_by_itself(store: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(store))
    page.get_by_text("Nothing has arrived yet").wait_for()
    assert page.get_by_text("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318").count() >= 1
    insert_requests(store, [request(1, duration_ns=1000)])
    page.locator(".tt-sentence").wait_for()


def test_without_stages_the_page_names_the_call_that_opens_them(
    store: Store, serve: Serve, page: Any, tmp_path: Path
) -> None:
    spans: Spans = [(1, 0, "POST /v1/chat", 0, 100, {"kind": 2}), (2, 1, "vllm call", 10, 90, {"kind": 3})]
    insert_traces(store, tmp_path, [encode_traces({"service.name": "front"}, spans_of(TRACE, spans))], "stageless")
    page.goto(serve(store) + f"/requests/{TRACE}")
    page.locator(".tt-hint").wait_for()
    assert "80.0 ms inside front" in page.locator(".tt-hint").inner_text()


def test_theme_and_language_are_kept(seeded: Store, serve: Serve, page: Any) -> None:
    address = serve(seeded)
    page.goto(address)
    page.locator(".tt-sentence").first.wait_for()
    scheme = "document.documentElement.getAttribute('data-mantine-color-scheme')"
    assert page.evaluate(scheme) == "light"
    page.locator("#theme-toggle").click()
    page.wait_for_function(f"{scheme} === 'dark'")
    page.reload(wait_until="domcontentloaded")
    assert page.evaluate(scheme) == "dark"
    page.get_by_text("简体中文").click()
    page.locator("h1", has_text="总览").wait_for()


def test_a_token_is_asked_for_in_the_browser(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded, token="open sesame") + "/requests?order=slowest")
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    page.get_by_label("Token").fill("open sesame")
    page.keyboard.press("Enter")
    page.locator("#showing").filter(has_text="50 of 121").wait_for()
    assert page.url.endswith("/requests?order=slowest")


def test_an_older_answer_never_replaces_a_newer_one(seeded: Store, serve: Serve, page: Any) -> None:
    slow = SlowFirst(seeded)
    page.goto(serve(slow) + "/requests")
    page.locator("#showing").filter(has_text="50 of 121").wait_for()
    page.evaluate("tailtrace.go('/requests?service=gateway')")
    assert slow.waiting.wait(20)
    page.evaluate("tailtrace.go('/requests?service=api')")
    page.locator("#showing").filter(has_text="50 of 120").wait_for()
    with page.expect_response(lambda answer: "gateway" in (answer.request.post_data or "")):
        slow.go.set()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator("#showing").inner_text() == "showing 50 of 120"
    assert page.url.endswith("service=api")


def test_twenty_thousand_spans(store: Store, serve: Serve, page: Any, tmp_path: Path) -> None:
    spans: Spans = [(1, 0, "root", 0, 20_000, {"kind": 2})]
    spans += [(n, 1, "decode step", n, n + 0.9, {"tailtrace.stage": "decode"}) for n in range(2, 15_001)]
    spans += [
        (n, n - 1 if n % 10 else 1, f"call {n % 7}", n % 19_000, n % 19_000 + 5, {}) for n in range(15_001, 20_001)
    ]
    data = spans_of(TRACE, spans)
    bodies = [encode_traces({"service.name": "big"}, data[at : at + 5000]) for at in range(0, 20_000, 5000)]
    insert_traces(store, tmp_path, bodies, "big")
    with page.expect_response(lambda answer: "/waterfall" in answer.url) as fetched:
        page.goto(serve(store) + f"/requests/{TRACE}")
    assert len(fetched.value.body()) < 2_000_000
    page.get_by_text("showing 20,000 of 20,000 spans").wait_for()
    page.locator(".tt-row").first.wait_for()
    assert page.locator(".tt-row").count() < 120
    page.get_by_text("Unfold all").click()
    assert page.locator(".tt-row").count() < 120
    page.get_by_placeholder("Find a span").fill(f"{19_999:016x}")
    page.get_by_text("1 found").wait_for()
    page.locator(".tt-row.is-match").wait_for()

"""The waterfall's findings: clocks that differ, clipped spans, missing parents, logs, the critical path alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dashboard_seed import MS, TRACE, Spans, spans_of
from seeding import T0, insert_traces, judge_traces

from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import encode_traces

Serve = Callable[..., str]
FRONT: Spans = [
    (1, 0, "POST /chat", 0, 100, {"kind": 2}),
    (2, 1, "call", 10, 90, {"kind": 3}),
    (4, 1, "late", 80, 130, {}),
]
BACK: Spans = [
    (3, 2, "serve", -30, 10, {"kind": 2}),
    (5, 99, "orphan", 20, 30, {}),
]


@pytest.fixture
def odd(store: Store, tmp_path: Path) -> Store:
    """A server whose clock is behind, a span that outlives its parent, a span whose parent never came."""
    bodies = [
        encode_traces({"service.name": name}, spans_of(TRACE, [(*one[:5], dict(one[5])) for one in spans]))
        for name, spans in (("front", FRONT), ("back", BACK))
    ]
    insert_traces(store, tmp_path, bodies, "odd")
    judge_traces(store, [TRACE])
    store.command(
        "INSERT INTO otel_logs (Timestamp, TraceId, SpanId, SeverityText, SeverityNumber, ServiceName, Body) VALUES"
        " (fromUnixTimestamp64Nano({at:Int64}), {trace:String}, '0000000000000002', 'WARN', 13, 'front',"
        " '<i>slow</i> answer')",
        {"at": T0 + 50 * MS, "trace": TRACE},
    )
    return store


def left(page: Any, name: str) -> float:
    bar = page.locator(".tt-row", has_text=name).locator(".tt-span")
    return float(bar.evaluate("node => parseFloat(node.style.left)"))


def test_clocks_are_corrected_in_the_view_alone(odd: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(odd) + f"/requests/{TRACE}")
    page.locator(".tt-skew", has_text="1 span starts before its caller").wait_for()
    assert page.locator(".tt-skew", has_text="1 span names a parent that never came").count() == 1
    sent, caller = left(page, "serve"), left(page, "call")
    assert sent < caller
    page.get_by_role("button", name="Correct in this view").click()
    assert left(page, "serve") > left(page, "call")
    assert "clocks=corrected" in page.url
    page.reload()
    page.locator(".tt-row", has_text="serve").wait_for()
    assert left(page, "serve") > left(page, "call")
    clipped = page.locator(".tt-row:has(.tt-outside)")
    assert [text.split("\n")[0] for text in clipped.all_inner_texts()] == ["late"]


def test_logs_stand_beside_their_span(odd: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(odd) + f"/requests/{TRACE}?span={2:016x}")
    log = page.locator(".tt-log")
    log.wait_for()
    assert "WARN" in log.inner_text()
    assert log.locator("pre").inner_text() == "<i>slow</i> answer"


def test_the_rest_is_dimmed_and_the_address_says_so(odd: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(odd) + f"/requests/{TRACE}?dim=1")
    page.locator(".tt-row.is-dim").first.wait_for()
    button = page.get_by_role("button", name="Critical path only")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    page.locator(".tt-row.is-dim").first.wait_for(state="detached")
    assert "dim" not in page.url


def test_keys_of_jaeger_and_perfetto(odd: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(odd) + f"/requests/{TRACE}")
    page.locator(".tt-row", has_text="call").wait_for()
    page.keyboard.press("ArrowDown")  # scrolls the page while the waterfall is not looked at
    assert "zoom=" not in page.url
    for zoom, whole in (("w", "f"), ("ArrowUp", "F")):
        page.locator(".tt-rows-scroll").focus()
        page.keyboard.press(zoom)
        page.wait_for_url("**zoom=*")
        here = page.url
        page.keyboard.press("Shift+ArrowRight")
        page.wait_for_function("before => location.href !== before", arg=here)
        page.keyboard.press(whole)
        page.wait_for_function("() => !location.search.includes('zoom=')")
    page.keyboard.press("Control+k")
    page.keyboard.type("late")
    page.locator(".tt-row.is-match", has_text="late").wait_for()
    assert page.locator(".tt-find").input_value() == "late"


def test_a_link_leads_to_the_trace_it_names(store: Store, serve: Serve, page: Any, tmp_path: Path) -> None:
    other = TRACE[::-1]
    span = spans_of(TRACE, [(1, 0, "worker", 0, 100, {})])[0]
    span.links = [(bytes.fromhex(other), (7).to_bytes(8, "big"))]
    insert_traces(store, tmp_path, [encode_traces({"service.name": "front"}, [span])], "linked")
    page.goto(serve(store) + f"/requests/{TRACE}?span={1:016x}")
    link = page.locator(f".tt-side a[href='/requests/{other}?span={7:016x}']")
    link.wait_for()
    assert link.inner_text() == other


def test_alike_siblings_are_one_row_until_opened(store: Store, serve: Serve, page: Any, tmp_path: Path) -> None:
    spans: Spans = [(1, 0, "POST /chat", 0, 100, {"kind": 2}), (2, 1, "work", 0, 100, {})]
    spans += [(10 + n, 1, "poll", 5 + n, 6 + n, {}) for n in range(9)]
    spans += [(30 + n, 1, "ping", 50 + n, 51 + n, {}) for n in range(7)]
    insert_traces(store, tmp_path, [encode_traces({"service.name": "front"}, spans_of(TRACE, spans))], "alike")
    address = serve(store) + f"/requests/{TRACE}"
    page.goto(address)
    group = page.locator(".tt-row", has=page.locator(".tt-span.is-group"))
    group.wait_for()
    assert "× 9 alike" in group.inner_text()
    assert page.locator(".tt-row").count() == 2 + 1 + 7
    group.click()
    page.locator(".tt-row", has_text="poll").nth(8).wait_for()
    assert page.locator(".tt-row").count() == 2 + 9 + 7
    page.goto(f"{address}?span={15:016x}")
    page.locator(".tt-row.is-selected", has_text="poll").wait_for()
    assert page.locator(".tt-span.is-group").count() == 0

"""The dashboard as a reader meets it: a real browser against a running product, times from the browser's own clock.

    overview_cold_ms          a browser that has nothing cached, until all charts of the overview are painted
    filter_ms                 another filter on the list of requests, until its answer and its chart are drawn
    trace20k_paint_ms         a trace of 20,000 spans, scripts cached, until its first rows are drawn
    trace20k_click_ms         a click on a row, until the span's attributes are there
    ui_p95_ms_under_ingest    pages and filters in turn while 40,000 spans/s come in

--only PART... measures these alone: overview, filter, trace, ingest.

With --peers also, on the same traces, ours and Arize Phoenix's (installed below --work):

    list_cold_ms              the list of requests (of traces), nothing cached, until its rows are drawn
    phoenix_list_cold_ms
    phoenix_trace_paint_ms    the trace of 20,000 spans, scripts cached, until the first spans of its tree are drawn
    phoenix_trace_shown       how many of them it drew

Needs playwright and /usr/bin/chromium; without them every figure is null. Phoenix takes in about 100 spans a second.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from harness import Figure, arguments, quantile, report, wait_until, workspace
from load import LoadResult, send
from payload import BodyFactory
from peers import PHOENIX, serving, stored_spans
from product import Product, running

from tailtrace.instrumentation.otlp import SpanData, encode_traces

CHROMIUM = "/usr/bin/chromium"
BIG = "0af7651916cd43dd8448eb211c80319c"
BIG_SPANS = 20_000
SPANS_PER_S = 40_000
NAMES = ("overview_cold_ms", "filter_ms", "trace20k_paint_ms", "trace20k_click_ms", "ui_p95_ms_under_ingest")
PARTS = ("overview", "filter", "trace", "ingest")
PEER_NAMES = ("list_cold_ms", "phoenix_list_cold_ms", "phoenix_trace_paint_ms", "phoenix_trace_shown")
PEER_LIMIT_S = 600.0
# Spans of Phoenix's tree, as its page marks them.
PEER_SPANS = ".span-node-wrap"

# Milliseconds from `act` until `done()` holds in the page, checked at every frame.
_UNTIL = """
async ([act, done, limit]) => {
  performance.setResourceTimingBufferSize(100000);
  const start = act === "load" ? 0 : performance.now();
  const answered = () => performance.getEntriesByType("resource").some(
    (one) => one.name.includes("_dash-update-component") && one.startTime >= start && one.responseEnd > 0);
  const holds = {
    charts: () => document.querySelector(".tt-graph svg") && !document.querySelector("#body [data-waiting]"),
    drawn: () => answered() && !document.querySelector("#body[data-dash-is-loading], #body [data-waiting]"),
    rows: () => document.querySelector(".tt-row"),
    listed: () => [...document.querySelectorAll("tbody tr")].some((row) => row.innerText.trim().length > 20),
    tree: () => document.querySelectorAll("PEER_SPANS").length > 1,
    details: () => document.querySelector(".tt-side:not([hidden]) td"),
  }[done];
  if (act === "click") document.querySelectorAll(".tt-row")[5].click();
  else if (act !== "load") window.tailtrace.go(act);
  while (!holds()) {
    if (performance.now() - start > limit) throw new Error("not drawn in " + limit + " ms: " + act + " " + done);
    await new Promise(requestAnimationFrame);
  }
  await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
  return performance.now() - start;
}
""".replace("PEER_SPANS", PEER_SPANS)


def until(page: Any, act: str, done: str, limit_ms: int = 60_000) -> float:
    """Milliseconds until the page shows what is waited for; `act` is load, click, or where to go."""
    return float(page.evaluate(_UNTIL, [act, done, limit_ms]))


def big_trace(now_ns: int, *, total: int = BIG_SPANS, per_body: int = 2500) -> list[bytes]:
    """One request of `total` spans: a root, runs of alike steps, and calls nested ten deep."""
    ms = 1_000_000
    begin = now_ns - 30_000 * ms

    def span(number: int, parent: int, name: str, start: float, end: float, **attributes: Any) -> SpanData:
        return SpanData(
            trace_id=bytes.fromhex(BIG), span_id=number.to_bytes(8, "big"),
            parent_span_id=parent.to_bytes(8, "big") if parent else b"", name=name, kind=2 if number == 1 else 1,
            start_unix_ns=begin + round(start * ms), end_unix_ns=begin + round(end * ms), attributes=attributes,
        )  # fmt: skip

    spans = [span(1, 0, "POST /v1/chat", 0, total)]
    middle = total * 3 // 4
    spans += [span(n, 1, "decode step", n, n + 0.9, **{"tailtrace.stage": "decode"}) for n in range(2, middle + 1)]
    spans += [
        span(n, n - 1 if n % 10 else 1, f"call {n % 7}", n % (total * 19 // 20), n % (total * 19 // 20) + 5)
        for n in range(middle + 1, total + 1)
    ]
    return [encode_traces({"service.name": "big"}, spans[at : at + per_body]) for at in range(0, total, per_body)]


def fill(product: Product, factory: BodyFactory, requests: int) -> None:
    """Requests of the last seconds and the big trace, until the list has them."""
    with httpx.Client(headers={"Content-Type": "application/x-protobuf"}, timeout=60) as client:
        url = f"http://127.0.0.1:{product.otlp_port}/v1/traces"
        for body in big_trace(time.time_ns()):
            client.post(url, content=body).raise_for_status()
        for _ in range(max(1, requests // factory.traces_per_body)):
            client.post(url, content=factory.body(time.time_ns())).raise_for_status()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        listed = product.get("/api/v1/requests", limit=1)["total"] >= requests * 9 // 10
        if listed and httpx.get(f"{product.ui}/api/v1/requests/{BIG}/waterfall", timeout=60).status_code == 200:
            return
        time.sleep(0.2)
    raise RuntimeError("the requests that were sent did not become queryable in 120 s")


def cold(browser: Any, address: str, done: str = "charts") -> float:
    """A page in a browser profile of its own: the overview until its charts, a list until its rows."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address, wait_until="commit")
    page.wait_for_selector("body", state="attached", timeout=60_000)
    value = until(page, "load", done)
    context.close()
    return value


def filters(page: Any, product: Product, rounds: int) -> list[float]:
    """Filters in turn; the first answer, which warms up, is not counted."""
    page.goto(product.ui + "/requests")
    page.wait_for_selector("#showing")
    wanted = ["outcome=ok", "min=100ms", "order=slowest", "text=chat", "order=decode"]
    found = [until(page, f"/requests?{wanted[at % len(wanted)]}&round={at}", "drawn") for at in range(rounds + 1)]
    return found[1:]


def trace(page: Any, product: Product) -> tuple[float, float]:
    """(paint, click) of the big trace, scripts cached."""
    page.goto(f"{product.ui}/requests/{BIG}", wait_until="commit")
    paint = until(page, "load", "rows")
    return paint, until(page, "click", "details")


def under_ingest(page: Any, product: Product, factory: BodyFactory, seconds: float) -> tuple[list[float], float]:
    """Pages and filters in turn while spans come in; with the spans a second that were acknowledged."""
    results: list[LoadResult] = []
    page.goto(product.ui + "/requests")
    page.wait_for_selector("#showing")

    def ingest() -> None:
        rate = SPANS_PER_S / factory.spans_per_body
        results.append(
            asyncio.run(
                send(product.otlp_port, lambda: factory.body(time.time_ns()), seconds=seconds, bodies_per_s=rate)
            )
        )

    thread = threading.Thread(target=ingest)
    thread.start()
    places = ["/?", "/requests?", "/requests?order=slowest&", "/map?", "/requests?outcome=ok&"]
    found, at = [], 0
    while thread.is_alive():
        found.append(
            until(page, f"{places[at % len(places)]}{'&' if '?' in places[at % len(places)] else '?'}n={at}", "drawn")
        )
        at += 1
        time.sleep(0.2)
    thread.join()
    return found, results[0].bodies * factory.spans_per_body / results[0].seconds


def phoenix(work: Path, browser: Any, factory: BodyFactory, quick: bool) -> tuple[float, float, int]:
    """Phoenix's list of traces from nothing, the big trace's paint, and how many spans of it were drawn."""
    traces, total, rounds = (20, 1_000, 3) if quick else (200, BIG_SPANS, 9)
    with serving(PHOENIX, work) as (port, database), httpx.Client(timeout=60) as client:
        url = f"http://127.0.0.1:{port}"
        bodies = [factory.body(time.time_ns()) for _ in range(max(1, traces // factory.traces_per_body))]
        sizes = [factory.spans_per_body] * len(bodies)
        # The big one comes last, in small bodies, each when the one before is stored: a flood would be refused.
        big = big_trace(time.time_ns(), total=total, per_body=500)
        sent = 0
        for body, size in zip([*bodies, *big], [*sizes, *[500] * len(big)], strict=True):
            headers = {"Content-Type": "application/x-protobuf", **PHOENIX.headers}
            client.post(f"{url}/v1/traces", content=body, headers=headers).raise_for_status()
            sent += size
            wait_until(lambda sent=sent: stored_spans(database) >= sent, PEER_LIMIT_S, f"{sent:,} spans stored", 0.2)
        project = client.get(f"{url}/v1/projects").raise_for_status().json()["data"][0]["id"]
        place = f"{url}/projects/{project}/traces"
        cold(browser, place, "listed")
        listed = statistics.median(cold(browser, place, "listed") for _ in range(rounds))
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        painted = []
        for _ in range(rounds + 1):
            page.goto(f"{place}/{BIG}", wait_until="commit")
            painted.append(until(page, "load", "tree"))
        shown = page.locator(PEER_SPANS).count()
        page.close()
    return listed, statistics.median(painted[1:]), shown


def measure(
    work: Path, seed: int, quick: bool, only: Collection[str] = PARTS, peers: bool = False
) -> dict[str, Figure]:
    from playwright.sync_api import sync_playwright

    factory = BodyFactory(seed)
    rounds = 3 if quick else 9
    with sync_playwright() as driver, ExitStack() as product_stopped:
        product = product_stopped.enter_context(running(work / "data"))
        fill(product, factory, 2_000 if quick else 50_000)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        cold(browser, product.ui)  # the server compresses its bundles once
        own: dict[str, Figure] = dict.fromkeys(NAMES)
        if "overview" in only:
            own["overview_cold_ms"] = statistics.median(cold(browser, product.ui) for _ in range(rounds))
        listed = [cold(browser, f"{product.ui}/requests", "listed") for _ in range(rounds if peers else 0)]
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        if "filter" in only:
            own["filter_ms"] = statistics.median(filters(page, product, rounds * 2))
        if "trace" in only:
            paint, click = zip(*(trace(page, product) for _ in range(rounds)), strict=True)
            own |= {"trace20k_paint_ms": statistics.median(paint), "trace20k_click_ms": statistics.median(click)}
        if "ingest" in only:
            busy, rate = under_ingest(page, product, factory, 8 if quick else 60)
            own["ui_p95_ms_under_ingest"] = quantile(busy, 0.95)
            print(f"{len(busy)} pages were drawn while {rate:,.0f} spans/s came in")
        figures: dict[str, Figure] = {}
        if peers:
            product_stopped.close()
            found = (statistics.median(listed), *phoenix(work, browser, factory, quick))
            figures = dict(zip(PEER_NAMES, found, strict=True))
        browser.close()
    return own | figures


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--peers", action="store_true", help="also Arize Phoenix, installed below --work")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        present = False
    else:
        present = Path(CHROMIUM).exists()
    if not present:
        print(f"playwright or {CHROMIUM} is missing: nothing was measured")
        report("dashboard", options.seed, dict.fromkeys(NAMES + (PEER_NAMES if options.peers else ())))
        return
    with workspace(options.work) as work:
        report("dashboard", options.seed, measure(work, options.seed, options.quick, options.only, options.peers))


if __name__ == "__main__":
    main()

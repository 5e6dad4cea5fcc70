"""Charts over time in a real browser: what a pointer reads, drags and opens; they need no chart library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dashboard_seed import MS, TRACE
from seeding import SECOND, T0, insert_requests, request

from tailtrace.ingest.store import Store

Serve = Callable[..., str]
RANGE = "since=2026-09-21T14:10:00Z&until=2026-09-21T14:14:00Z"


def panel(page: Any, title: str) -> Any:
    found = page.get_by_role("region", name=title, exact=True).locator(".tt-graph")
    found.locator("svg path").first.wait_for(state="attached")
    return found


def point(chart: Any, x: float, y: float) -> tuple[float, float]:
    """Where a share of a chart's width and height is on the page, once it is in sight."""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def query(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_charts_over_time_need_no_library(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded))
    panel(page, "Duration")
    assert page.locator(".tt-graph").count() == page.locator(".tt-graph > svg").count() == 4
    assert page.locator("[data-waiting]").count() == 0
    assert page.evaluate("window.Plotly") is None
    assert not [url for url in page.asked if "plotly" in url]


def test_a_pointer_reads_the_values_of_a_moment(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + f"/?{RANGE}&service=api")
    chart = panel(page, "Duration")
    page.mouse.move(*point(chart, 0.9, 0.5))
    tip = chart.locator(".tt-tip")
    tip.wait_for()
    time, *rows = tip.locator("div").all_inner_texts()
    assert time.startswith("2026-09-21 14:1")
    assert [row.split(" ")[0] for row in rows] == ["P50", "P95", "P99"]
    assert all(row.split(" ")[1] != "" and " ms" in row for row in rows)
    page.mouse.move(0, 0)
    tip.wait_for(state="hidden")


def test_a_range_is_dragged(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + f"/?{RANGE}&service=api")
    chart = panel(page, "Duration")
    page.mouse.move(*point(chart, 0.5, 0.5))
    page.mouse.down()
    page.mouse.move(*point(chart, 0.6, 0.5))
    chart.locator(".tt-drag").wait_for()
    page.keyboard.press("Escape")
    page.mouse.up()
    assert query(page) == parse_qs(RANGE + "&service=api")
    page.mouse.move(*point(chart, 0.5, 0.5))
    page.mouse.down()
    page.mouse.move(*point(chart, 0.8, 0.5))
    page.mouse.up()
    page.wait_for_url(lambda url: RANGE not in unquote(url))
    since, until = query(page)["since"][0], query(page)["until"][0]
    assert "2026-09-21T14:11:3" < since < "2026-09-21T14:12:1"
    assert "2026-09-21T14:12:5" < until < "2026-09-21T14:13:3"


def test_a_cell_of_the_heatmap_opens_its_slowest_request(store: Store, serve: Serve, page: Any) -> None:
    insert_requests(store, [request(n, duration_ns=100 * MS, end_ns=T0 - n * SECOND) for n in range(1, 60)])
    page.goto(serve(store) + f"/requests?{RANGE}")
    chart = panel(page, "Latency")
    cells = chart.locator("svg svg path").first
    box = cells.bounding_box()
    x, y = box["x"] + box["width"] - 3, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    chart.locator(".tt-tip", has_text="n=").wait_for()
    page.mouse.click(x, y)
    page.wait_for_url("**/requests/0*")


def test_a_box_is_dragged_on_the_heatmap(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + f"/requests?{RANGE}&service=api")
    chart = panel(page, "Latency")
    page.mouse.move(*point(chart, 0.95, 0.8))
    page.mouse.down()
    page.mouse.move(*point(chart, 0.7, 0.2))
    page.mouse.up()
    page.wait_for_url("**box=*")
    since, until, low, high = map(int, query(page)["box"][0].split(","))
    assert T0 - 60 * SECOND < since < until < T0 + 40 * SECOND
    assert 0 < low < high < 10 * SECOND
    page.locator("#box").wait_for()
    assert chart.locator("svg rect").count() == 1


def test_another_theme_and_another_answer(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + f"/?{RANGE}&service=api")
    chart = panel(page, "Duration")
    ink = "node => getComputedStyle(node.querySelector('svg svg path')).stroke"
    page.evaluate("document.querySelector('.tt-graph svg').kept = true")
    before = chart.evaluate(ink)
    page.locator("#theme-toggle").click()
    page.wait_for_function("document.documentElement.dataset.mantineColorScheme === 'dark'")
    assert chart.evaluate(ink) != before
    assert page.evaluate("document.querySelector('.tt-graph svg').kept")
    page.locator(".tt-as-table").nth(1).click()
    cells = page.locator(".tt-chart-table tbody tr")
    cells.first.wait_for()
    rows = cells.count()
    page.evaluate(f"tailtrace.go('/?{RANGE.replace('14:10', '14:13')}&service=api')")
    page.wait_for_function("(rows) => document.querySelectorAll('.tt-chart-table tbody tr').length < rows", arg=rows)


def test_names_of_deploys_are_text(seeded: Store, serve: Serve, page: Any) -> None:
    page.goto(serve(seeded) + f"/requests/{TRACE}")
    page.locator(".tt-row").first.wait_for()
    page.evaluate(
        """() => {
          const place = document.createElement("div");
          place.style.width = "400px";
          document.body.prepend(place);
          const x = ["2026-09-21T14:00:00.000", "2026-09-21T14:01:00.000"];
          const axis = { range: x, nticks: 1, tickformat: "%m-%d %H:%M" };
          const text = "&lt;img src=x onerror='hacked=1'&gt; &amp;amp;";
          const annotations = [{ x: x[0], y: 1, text, hovertext: "", font: { size: 10, color: "red" } }];
          const yaxis = { rangemode: "tozero" };
          const layout = { margin: { l: 9, r: 9, t: 9, b: 9 }, xaxis: axis, yaxis, annotations };
          const bar = { type: "bar", x, y: [null, 0], name: "<b>", marker: { color: "red" }, customdata: ["", ""] };
          tailtrace.timeChart(place, { data: [bar], layout }, 100);
        }"""
    )
    page.locator(".tt-note").wait_for()
    assert page.locator(".tt-note").evaluate("node => node.firstChild.data") == "<img src=x onerror='hacked=1'> &amp;"
    assert page.evaluate("window.hacked") is None
    assert page.locator("text", has_text="09-21 14:00").count() == 1

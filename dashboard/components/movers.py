"""What moved against the same hours a day and a week before: percentile then and now, and the stage that moved most."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries import Window, resolve_window
from tailtrace.analytics.queries.movers import Mover, Movers, movers
from tailtrace.analytics.queries.together import together
from tailtrace.analytics.queries.window import DAY_NS
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import panel, table
from tailtrace.dashboard.format import count, duration
from tailtrace.dashboard.text import Text
from tailtrace.ingest.store import Store

_BACK: Final = (("yesterday", DAY_NS), ("last_week", 7 * DAY_NS))


def draw_movers(store: Store, text: Text, spec: dict[str, str]) -> Any:
    """Two panels, against yesterday and last week; `spec` has the bounds of the window and `root`."""
    window = resolve_window(store, since=spec["since"], until=spec["until"])
    if window is None:
        return None
    is_root = Address(root=spec.get("root", "")).is_root
    yesterday, last_week = together([partial(movers, store, window, back_ns=ns, is_root=is_root) for _, ns in _BACK])
    panels = [_panel(text, window, name, found) for (name, _), found in zip(_BACK, (yesterday, last_week), strict=True)]
    return html.Div(panels, className="tt-two is-even")


def _panel(text: Text, window: Window, name: str, found: Movers) -> Any:
    title = text(f"movers.{name}")
    if not found.movers:
        words = text("movers.none", judged=count(found.judged)) if found.compared else text("movers.nothing_then")
        return panel(title, "", html.P(words, className="tt-muted"))
    number = "is-number"
    heads = [(text("column.service"), ""), (text("movers.p95"), number), (text("movers.change"), number),
             (text("movers.stage"), ""), ("", "")]  # fmt: skip
    rows = [_row(text, window, found, one) for one in found.movers]
    return panel(title, text("showing", shown=count(len(rows)), total=count(found.total)), table(heads, rows))


def _row(text: Text, window: Window, found: Movers, one: Mover) -> list[Any]:
    slower = one.change_ns > 0
    compared = Address(
        since=str(window.since_ns), until=str(window.until_ns), service=one.service,
        a_since=str(window.since_ns - found.back_ns), a_until=str(window.until_ns - found.back_ns),
    )  # fmt: skip
    model = html.Span([" · ", one.model], className="tt-muted") if one.model else None
    return [
        [one.service or text("service.unnamed"), model],
        f"{duration(one.before_ns)} → {duration(one.value_ns)}",
        html.Span(
            f"{'▲' if slower else '▼'} {one.ratio:.2f}×",
            className="tt-bad" if slower else "tt-good",
            title=text("movers.n", now=count(one.requests), then=count(one.requests_before)),
        ),
        stage_change(text, one) if one.stage else "–",
        link(text("nav.compare"), href=compared.href("/compare"), className="tt-button is-small"),
    ]


def stage_change(text: Text, one: Mover) -> Any:
    """The stage that moved most, in its colour, and by how much."""
    sign = "+" if one.stage_change_ns > 0 else "−"
    return html.Span(
        [html.I(className="tt-dot", style={"background": f"var(--stage-{one.stage})"}), text.stage(one.stage),
         f" {sign}{duration(abs(one.stage_change_ns))}"],
        className="tt-chip", title=text.meaning(one.stage),
    )  # fmt: skip

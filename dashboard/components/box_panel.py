"""A box dragged on the heatmap, against the rest: pairs of bars by value and by stage, the largest difference first."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.analytics.queries import resolve_window
from tailtrace.analytics.queries.box import Box, box_versus_rest
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.format import clock, count, duration, share
from tailtrace.dashboard.request_address import filter_of
from tailtrace.dashboard.text import Text
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

_PATH = "/requests"


def parse_box(text: str) -> tuple[int, int, int, int]:
    """Since, until, low, high of the address. Raises Rejected for anything else."""
    try:
        since, until, low, high = (int(part) for part in text.split(","))
    except ValueError as error:
        raise Rejected("box is four whole numbers: since, until, low, high in nanoseconds") from error
    return since, until, max(0, low), max(0, high)


def box_panel(store: Store, text: Text, address: Address) -> Any:
    """The panel under the heatmap."""
    since, until, low, high = parse_box(address.box)
    window = resolve_window(store, since=address.since or None, until=address.until or None, span=address.range or None)
    found = box_versus_rest(store, filter_of(address, window), since_ns=since, until_ns=until, low_ns=low, high_ns=high)
    bounds = {"since": since, "until": until, "range": None, "min": f"{low}ns", "max": f"{high}ns"}
    only = address.href(_PATH, box=None, cursor=None, **bounds)
    return html.Section(
        [
            html.Div(
                [
                    html.H2(text("box.title", inside=count(found.inside), rest=count(found.rest))),
                    html.Span(
                        f"{clock(since)[:8]} – {clock(until)[:8]}, {duration(low)} – {duration(high)}",
                        className="tt-caption",
                    ),
                    html.Div(
                        [
                            link(text("box.only"), href=only, className="tt-button is-small"),
                            link(text("box.clear"), href=address.href(_PATH, box=None), className="tt-button is-small"),
                        ],
                        className="tt-ids",
                    ),
                ],
                className="tt-panel-head",
            ),
            _body(text, found),
        ],
        className="tt-panel",
        id="box",
        **aria(label=text("box.label")),
    )


def _body(text: Text, found: Box) -> Any:
    if not found.inside or not found.rest:
        return html.P(text("box.none"), className="tt-muted")
    longest = max((max(one.inside_ns, one.rest_ns) for one in found.stages), default=1) or 1
    values = [
        _pair(
            [html.Span(text(f"column.{one.name}"), className="tt-muted"), " ", text.value(one.name, one.value)],
            one.inside_share, one.rest_share, share(one.inside_share), share(one.rest_share), "var(--p99)",
        )
        for one in found.values
    ]  # fmt: skip
    stages = [
        _pair(
            text.stage(one.stage), one.inside_ns / longest, one.rest_ns / longest, duration(one.inside_ns),
            duration(one.rest_ns), f"var(--stage-{one.stage})",
        )
        for one in found.stages
    ]  # fmt: skip
    none = html.P(text("box.same"), className="tt-muted")
    return html.Div(
        [
            html.Div([html.H3(text("box.values")), *(values or [none])]),
            html.Div([html.H3(text("box.stages")), *(stages or [none])]),
        ],
        className="tt-two",
    )


def _pair(name: Any, inside: float, rest: float, inside_words: str, rest_words: str, colour: str) -> Any:
    """The upper bar is the box, the lower the rest."""
    return html.Div(
        [
            html.Span(name, className="tt-pair-name"),
            html.Div(
                [
                    html.I(style={"width": f"{100 * inside:.1f}%", "background": colour}),
                    html.I(style={"width": f"{100 * rest:.1f}%", "background": "var(--line-strong)"}),
                ],
                className="tt-pair-bars",
            ),
            html.Span([html.Strong(inside_words), " / ", rest_words], className="tt-pair-words"),
        ],
        className="tt-pair",
    )

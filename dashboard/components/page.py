"""What the pages about one service share: which service and range they are of, head, panels, notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries import Window, resolve_window, services
from tailtrace.analytics.queries.conditions import Conditions, conditions
from tailtrace.analytics.queries.recorded import MOST
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.marks import simulated_mark
from tailtrace.dashboard.format import count, moment
from tailtrace.dashboard.text import Text
from tailtrace.ingest.store import Store


@dataclass(frozen=True, slots=True)
class Scope:
    """The window of a page and the service it is about: the one asked for, else the busiest."""

    window: Window
    service: str
    known: list[str]
    simulated: bool
    conditions: Conditions


def scope_of(store: Store, address: Address, *, engines: bool = False) -> Scope | None:
    """None while nothing is stored. `engines` prefers a service that runs an engine of its own."""
    window = resolve_window(store, since=address.since or None, until=address.until or None, span=address.range or None)
    if window is None:
        return None
    found = services(store, window).services
    ranked = sorted(found, key=lambda one: (engines and one.roots > 0, -one.requests))
    known = [one.service for one in ranked]
    service = address.service or (known[0] if known else "")
    simulated = any(one.simulated for one in found if one.service == service)
    return Scope(window, service, known, simulated, conditions(store, window, service))


def service_controls(store: Store, text: Text, address: Address, *more: Any, engines: bool = False) -> Any:
    """The choice of the service, and what a page adds."""
    scope = scope_of(store, address, engines=engines)
    if scope is None:
        return None
    known = sorted({*scope.known, *([address.service] if address.service else [])})
    choice = dmc.Select(
        id={"type": "filter", "key": "service"},
        data=[{"value": name, "label": name or text("service.unnamed")} for name in known if name],
        value=address.service or None,
        placeholder=scope.service or text("filter.service"),
        clearable=True,
        searchable=True,
        size="xs",
        w=180,
        **aria(label=text("filter.service")),
    )
    return html.Div([choice, *more], className="tt-filters", role="search")


def page_head(
    text: Text, address: Address, path: str, title: str, scope: Scope, *extra: Any, every: bool = False
) -> Any:
    """Title, service, range, conditions, a link that keeps showing what is seen. `every`: the page is about all."""
    window = scope.window
    frozen = address.href(path, range=None, since=window.since_ns, until=window.until_ns, service=scope.service)
    return html.Div(
        [
            html.H1(title),
            html.Strong(scope.service) if scope.service and not every else None,
            simulated_mark(text) if scope.simulated else None,
            html.Span(
                text("range.words", since=moment(window.since_ns), until=moment(window.until_ns)),
                className="tt-caption",
            ),
            None if every else html.Span(condition_words(text, scope.conditions), className="tt-caption"),
            *extra,
            html.Button(text("copy.link"), className="tt-button is-small", **data(copy_link=frozen)),
        ],
        className="tt-page-head",
    )


def condition_words(text: Text, found: Conditions) -> str:
    """`llama2-70b, bf16, vLLM 0.9, TP 4`, or how many kinds are mixed."""
    common = [f"TP {value}" if name == "tp" else value for name, value in found.common.items()]
    if found.mixed:
        common.append(text("conditions.mixed", n=max(found.kinds, *found.mixed.values())))
    return " · ".join(common)


def panel(text: str, caption: Any, *children: Any, **attributes: Any) -> Any:
    """A titled panel."""
    return html.Section(
        [
            html.Div([html.H2(text), html.Span(caption, className="tt-caption")], className="tt-panel-head"),
            *children,
        ],
        className="tt-panel",
        **attributes,
        **aria(label=text),
    )


def table(heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], *, key: int = 1) -> Any:
    """A dense table; heads are (words, class) and the class holds for the column. The first `key` cells are bold."""
    kinds = [kind for _, kind in heads]
    return html.Div(
        html.Table(
            [
                html.Thead(html.Tr([html.Th(words, className=kind) for words, kind in heads])),
                html.Tbody(
                    [
                        html.Tr(
                            [
                                html.Td(cell, className=kind + (" tt-strong" if at < key else ""))
                                for at, (cell, kind) in enumerate(zip(row, kinds, strict=True))
                            ]
                        )
                        for row in rows
                    ]
                ),
            ],
            className="tt-table",
        ),
        className="tt-scroll",
        tabIndex=0,
    )


def notice(title: str, *paragraphs: Any) -> Any:
    """A page, or part of one, that has nothing to show: it says why."""
    return html.Div([html.H2(title), *(html.P(one) for one in paragraphs if one)], className="tt-notice")


def newest_words(text: Text, shown: int) -> str:
    """How many rows a list of what was recorded has; where it is cut, that only the newest are in it."""
    return text("newest", n=count(shown)) if shown >= MOST else count(shown)


def tag(words: str, kind: str = "") -> Any:
    """A short word in a box; `kind` is good, bad, warn or nothing."""
    return html.Span(words, className="tt-tag" + (f" is-{kind}" if kind else ""))

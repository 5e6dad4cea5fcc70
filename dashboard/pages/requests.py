"""Requests: a heatmap of their latency, what their values are, and a list, each row's time divided among stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from dash import html

from tailtrace.analytics.queries import RequestFilter, RequestList, Window, list_requests, resolve_window, services
from tailtrace.analytics.queries.facets import facets
from tailtrace.analytics.queries.heatmap import heatmap
from tailtrace.analytics.queries.recorded import recorded_markers
from tailtrace.analytics.queries.together import together
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import data
from tailtrace.dashboard.components.box_panel import box_panel, parse_box
from tailtrace.dashboard.components.facets import facet_list
from tailtrace.dashboard.components.heatmap import heatmap_panel
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.marks import simulated_mark
from tailtrace.dashboard.components.request_filters import request_filters
from tailtrace.dashboard.components.request_table import chosen_columns, request_table
from tailtrace.dashboard.components.saved_views import saved_views
from tailtrace.dashboard.format import count, moment
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.request_address import filter_of
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/requests"


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    """The page; the first-run page while nothing is stored."""
    window = resolve_window(store, since=address.since or None, until=address.until or None, span=address.range or None)
    if window is None:
        return first_run(text, settings)
    wanted = filter_of(address, window)
    calls: list[Callable[[], Any]] = [
        partial(list_requests, store, wanted),
        partial(heatmap, store, window, wanted),
        partial(facets, store, wanted),
        partial(recorded_markers, store, window.since_ns, window.until_ns),
    ]
    if address.box:
        calls.append(partial(box_panel, store, text, address))
    found, cells, values, deploys, *compared = together(calls)
    marked = parse_box(address.box) if address.box else None
    return html.Div(
        [
            _head(text, address, window, wanted, found),
            html.Div(
                [
                    facet_list(text, address, values),
                    html.Div(
                        [
                            heatmap_panel(text, cells, marked, deploys, address.service) if cells.counts else None,
                            *compared,
                            request_table(text, found, chosen_columns(address))
                            if found.requests
                            else _empty(store, text, address, window),
                            _foot(text, address, found),
                        ],
                        className="tt-page",
                    ),
                ],
                className="tt-faceted",
            ),
        ],
        className="tt-page",
    )


def controls(store: Store, text: Text, address: Address) -> Any:
    """The filters; nothing while nothing is stored."""
    window = resolve_window(store, since=address.since or None, until=address.until or None, span=address.range or None)
    return None if window is None else request_filters(text, address, services(store, window), _PATH)


def _head(text: Text, address: Address, window: Window, wanted: RequestFilter, found: RequestList) -> Any:
    frozen = address.href(_PATH, range=None, since=window.since_ns, until=window.until_ns)
    return html.Div(
        [
            html.H1(text("nav.requests")),
            simulated_mark(text) if any(row.simulated for row in found.requests) else None,
            html.Span(
                text("range.words", since=moment(window.since_ns), until=moment(window.until_ns)),
                className="tt-caption",
            ),
            *[
                html.A(kind.upper(), href=_export(wanted, kind), className="tt-button is-small", title=text("export"))
                for kind in ("csv", "json")
            ],
            saved_views(text),
            html.Button(text("copy.link"), className="tt-button is-small", **data(copy_link=frozen)),
        ],
        className="tt-page-head",
    )


def _export(wanted: RequestFilter, kind: str) -> str:
    """The export of the API with the same filter."""
    names = ("service", "model", "route", "outcome", "version", "replica", "tenant", "kind", "text", "attributes")
    values: dict[str, Any] = {name: getattr(wanted, name) for name in (*names, "order")}
    values |= {"min_duration_ns": wanted.min_duration_ns, "max_duration_ns": wanted.max_duration_ns}
    values |= {"since": wanted.since_ns, "until": wanted.until_ns, "format": kind}
    values["is_root"] = {None: "any", True: "true", False: "false"}[wanted.is_root]
    return "/api/v1/requests/export?" + urlencode({key: one for key, one in values.items() if one not in ("", None)})


def _empty(store: Store, text: Text, address: Address, window: Window) -> Any:
    """What was searched, how much lies outside the range, and one next step."""
    outside = list_requests(store, filter_of(Address.parse(address.href("", cursor=None)), None)).total
    step = link(
        text("requests.widen"), href=address.href(_PATH, since=None, until=None, range="30d"), className="tt-button"
    )
    clear = link(text("filter.clear"), href=address.only("range", "since", "until").href(_PATH), className="tt-button")
    return html.Div(
        [
            html.H2(text("requests.none")),
            html.P(text("range.words", since=moment(window.since_ns), until=moment(window.until_ns))),
            html.P(text("requests.outside", n=count(outside))),
            step if outside else clear,
        ],
        className="tt-notice",
    )


def _foot(text: Text, address: Address, found: RequestList) -> Any:
    following = (
        link(text("requests.next"), href=address.href(_PATH, cursor=found.next), className="tt-button")
        if found.next
        else None
    )
    first = (
        link(text("requests.first"), href=address.href(_PATH, cursor=None), className="tt-button")
        if address.cursor
        else None
    )
    return html.Div(
        [
            html.Span(text("showing", shown=count(len(found.requests)), total=count(found.total)), id="showing"),
            first,
            following,
        ],
        className="tt-foot",
    )

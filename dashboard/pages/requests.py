"""Requests: a filtered list, newest or slowest first, each with its time divided among stages."""

from __future__ import annotations

from typing import Any, Final

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries import (
    RequestFilter,
    RequestList,
    Services,
    Window,
    list_requests,
    resolve_window,
    services,
)
from tailtrace.analytics.queries.request_row import RequestRow
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.marks import outcome_mark, simulated_mark
from tailtrace.dashboard.components.stage_bar import legend, mini_bar
from tailtrace.dashboard.format import clock, count, duration, moment, parse_duration
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.stages import NAMES, UNEXPLAINED

_PAGE: Final = 50
_PATH: Final = "/requests"


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    """The page; the first-run page while nothing is stored."""
    window = resolve_window(store, since=address.since or None, until=address.until or None, span=address.range or None)
    if window is None:
        return first_run(text, settings)
    found = list_requests(store, _filter(address, window))
    return html.Div(
        [
            _head(text, address, window, found),
            _table(text, found) if found.requests else _empty(store, text, address, window),
            _foot(text, address, found),
        ],
        className="tt-page",
    )


def controls(store: Store, text: Text, address: Address) -> Any:
    """The filters; nothing while nothing is stored."""
    window = resolve_window(store, since=address.since or None, until=address.until or None, span=address.range or None)
    return None if window is None else _filters(text, address, services(store, window))


def _filter(address: Address, window: Window | None) -> RequestFilter:
    return RequestFilter(
        service=address.service,
        model=address.model,
        route=address.route,
        outcome=address.outcome,
        kind=address.kind or "request",
        is_root=address.is_root,
        min_duration_ns=parse_duration(address.min),
        max_duration_ns=parse_duration(address.max),
        text=address.text,
        since_ns=window.since_ns if window else None,
        until_ns=window.until_ns if window else None,
        order="slowest" if address.order == "slowest" else "newest",
        limit=_PAGE,
        cursor=address.cursor or None,
    )


def _head(text: Text, address: Address, window: Window, found: RequestList) -> Any:
    frozen = address.href(_PATH, range=None, since=window.since_ns, until=window.until_ns)
    return html.Div(
        [
            html.H1(text("nav.requests")),
            simulated_mark(text) if any(row.simulated for row in found.requests) else None,
            html.Span(
                text("range.words", since=moment(window.since_ns), until=moment(window.until_ns)),
                className="tt-caption",
            ),
            html.Button(text("copy.link"), className="tt-button is-small", **data(copy_link=frozen)),
        ],
        className="tt-page-head",
    )


def _filters(text: Text, address: Address, known: Services) -> Any:
    chosen = [one for one in known.services if address.service in ("", one.service)]
    return html.Div(
        [
            dmc.SegmentedControl(
                id={"type": "filter", "key": "order"},
                data=[{"value": order, "label": text(f"order.{order}")} for order in ("newest", "slowest")],
                value="slowest" if address.order == "slowest" else "newest",
                size="xs",
                **aria(label=text("order.label")),
            ),
            _select(text, "service", address.service, [one.service for one in known.services], 170),
            _select(text, "model", address.model, sorted({model for one in chosen for model in one.models}), 190),
            _select(text, "route", address.route, sorted({route for one in chosen for route in one.routes}), 180),
            _select(text, "outcome", address.outcome, ["ok", "error", "cancelled", "timeout", "rejected"], 120),
            _input(text, "min", address.min, 92),
            _input(text, "max", address.max, 92),
            _input(text, "text", address.text, 200),
            dmc.SegmentedControl(
                id={"type": "filter", "key": "root"},
                data=[{"value": "true", "label": text("root.true")}, {"value": "any", "label": text("root.any")}],
                value="any" if address.root == "any" else "true",
                size="xs",
                **aria(label=text("root.label")),
            ),
            link(
                text("filter.clear"),
                href=address.only("range", "since", "until").href(_PATH),
                className="tt-button is-small",
            ),
        ],
        className="tt-filters",
        role="search",
    )


def _select(text: Text, key: str, value: str, options: list[str], width: int) -> Any:
    listed = [option for option in options if option]
    if value and value not in listed:
        listed.append(value)
    return dmc.Select(
        id={"type": "filter", "key": key},
        data=[{"value": option, "label": text.outcome(option) if key == "outcome" else option} for option in listed],
        value=value or None,
        placeholder=text(f"filter.{key}"),
        clearable=True,
        searchable=len(listed) > 7,
        size="xs",
        w=width,
        **aria(label=text(f"filter.{key}")),
    )


def _input(text: Text, key: str, value: str, width: int) -> Any:
    return dmc.TextInput(
        id={"type": "filter", "key": key},
        value=value,
        placeholder=text(f"filter.{key}"),
        debounce=400,
        size="xs",
        w=width,
        **aria(label=text(f"filter.{key}")),
    )


def _table(text: Text, found: RequestList) -> Any:
    heads = (
        ("column.start", ""),
        ("column.outcome", ""),
        ("column.service", ""),
        ("column.request", ""),
        ("column.model", ""),
        ("column.duration", "is-number"),
        ("column.ttft", "is-number"),
        ("column.tokens", "is-number"),
        ("column.stages", "is-stages"),
    )
    longest = max(row.duration_ns for row in found.requests)
    # The head says it when all rows are simulated; each row says it when only some are.
    marked = len({row.simulated for row in found.requests}) > 1
    shown = {part.stage for row in found.requests for part in row.stages if part.share >= 0.01}
    return html.Section(
        [
            html.Div(
                html.Table(
                    [
                        html.Thead(html.Tr([html.Th(text(key), className=kind) for key, kind in heads])),
                        html.Tbody([_row(text, row, longest, marked) for row in found.requests]),
                    ],
                    className="tt-table is-list",
                ),
                className="tt-scroll",
            ),
            html.Div(
                legend(text, [stage for stage in NAMES if stage in shown] + [UNEXPLAINED]), className="tt-table-foot"
            ),
        ],
        className="tt-panel",
        **aria(label=text("nav.requests")),
    )


def _row(text: Text, row: RequestRow, longest: int, marked: bool) -> Any:
    entry = "" if row.is_root else f"?entry={row.span_id}"
    href = f"/requests/{row.trace_id}{entry}"
    tokens = (
        "–"
        if row.input_tokens is None and row.output_tokens is None
        else f"{count(row.input_tokens)} → {count(row.output_tokens)}"
    )
    return html.Tr(
        [
            html.Td(
                link(clock(row.start_unix_ns), href=href, className="tt-strong"),
                title=moment(row.start_unix_ns) + " UTC",
                className="is-time",
            ),
            html.Td(outcome_mark(text, row.outcome)),
            html.Td([row.service, simulated_mark(text) if marked and row.simulated else None]),
            html.Td(row.route or row.name, className="is-clipped", title=f"{row.name} {row.route}"),
            html.Td(row.model, className="is-clipped", title=row.model),
            html.Td(duration(row.duration_ns), className="is-number"),
            html.Td(duration(row.ttft_ns), className="is-number"),
            html.Td(tokens, className="is-number"),
            html.Td(
                mini_bar(
                    text,
                    row.stages,
                    row.unexplained_ns,
                    row.duration_ns,
                    width=row.duration_ns / longest if longest else 0,
                ),
                className="is-stages",
            ),
        ],
        **data(href=href),
    )


def _empty(store: Store, text: Text, address: Address, window: Window) -> Any:
    """What was searched, how much lies outside the range, and one next step."""
    outside = list_requests(store, _filter(Address.parse(address.href("", cursor=None)), None)).total
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

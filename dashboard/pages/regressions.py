"""Regressions: windows in which a service was slower than before, newest first, with the cause of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries import Window, resolve_window, series, services
from tailtrace.analytics.queries.recorded import (
    RecordedChange,
    RecordedMarker,
    recorded_changes,
    recorded_markers,
)
from tailtrace.analytics.queries.verdicts import WindowVerdict, verdicts
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.figures import chart, percentile_figure, percentile_key
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.markers import mark
from tailtrace.dashboard.components.page import newest_words, notice, panel, service_controls, table, tag
from tailtrace.dashboard.components.verdict import kept_verdict
from tailtrace.dashboard.format import DASH, count, growth, moment, share
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/regressions"
_SHOWN: Final = 100
_HOUR: Final = 3_600_000_000_000


def controls(store: Store, text: Text, address: Address) -> Any:
    return service_controls(store, text, address)


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    window = resolve_window(
        store, since=address.since or None, until=address.until or None, span=address.range or None, default_span="24h"
    )
    if window is None:
        return first_run(text, settings)
    found = verdicts(store, window.since_ns, window.until_ns, service=address.service, limit=_SHOWN)
    head = html.Div(
        [
            html.H1(text("nav.regressions")),
            html.Span(
                text("range.words", since=moment(window.since_ns), until=moment(window.until_ns)),
                className="tt-caption",
            ),
        ],
        className="tt-page-head",
    )
    changes = recorded_changes(store, window.since_ns, window.until_ns, service=address.service)
    markers = recorded_markers(store, window.since_ns, window.until_ns)
    above = [
        _timeline(store, text, window, address.service or _first(store, window, changes), changes, markers),
        _changes(text, changes),
        _markers(text, markers),
    ]
    if not found.verdicts and not changes:
        return html.Div(
            [head, *above, notice(text("regressions.none"), text("regressions.none.hint"))], className="tt-page"
        )
    shown = text("showing", shown=count(len(found.verdicts)), total=count(found.total))
    rows = [_row(text, one) for one in found.verdicts]
    return html.Div([head, *above, panel(text("regressions.windows"), shown, *rows)], className="tt-page")


def _first(store: Store, window: Window, changes: Sequence[RecordedChange]) -> str:
    """The service of the newest change, else the busiest."""
    if changes:
        return changes[0].service
    known = sorted(services(store, window).services, key=lambda one: -one.requests)
    return known[0].service if known else ""


def _timeline(
    store: Store, text: Text, window: Window, service: str, changes: Sequence[RecordedChange],
    markers: Sequence[RecordedMarker],
) -> Any:  # fmt: skip
    """Percentiles of one service over the window, with where its changes began and what was deployed."""
    data = series(store, window, service)
    figure = mark(
        percentile_figure(text, data, data.percentiles), text,
        markers, [one for one in changes if one.service == service], service,
    )  # fmt: skip
    title = f"{service or text('service.unnamed')} · {text('chart.duration')}"
    return chart("timeline", title, percentile_key(), figure, html.P(text("regressions.key"), className="tt-muted"),
                 wide=True, height=220, over_time=True)  # fmt: skip


def _changes(text: Text, found: Sequence[RecordedChange]) -> Any:
    if not found:
        return None
    heads = [(text("regressions.since"), ""), (text("regressions.until"), ""), (text("column.service"), ""),
             (text("column.model"), ""), (text("gpus.quantity"), ""), (text("regressions.state"), ""),
             (text("column.stage"), ""), ("", "")]  # fmt: skip

    def row(one: RecordedChange) -> list[Any]:
        until = one.until_unix_ns or str(int(one.onset_unix_ns) + _HOUR)
        around = Address(since=one.onset_unix_ns, until=until, service=one.service)
        stage = f"{text.stage(one.stage)} ({share(one.stage_share)})" if one.stage else DASH
        return [
            moment(one.onset_unix_ns), moment(one.until_unix_ns), one.service, one.model,
            text.or_else(f"chart.{one.metric}", one.metric),
            tag(text.or_else(f"change.{one.state}", one.state), "bad" if one.state == "confirmed" else "warn"), stage,
            link(text("nav.compare"), href=around.href("/compare"), className="tt-button is-small"),
        ]  # fmt: skip

    rows = [row(one) for one in found]
    caption = f"{text('regressions.changes.hint')} · {newest_words(text, len(found))}"
    return panel(text("regressions.changes"), caption, table(heads, rows))


def _markers(text: Text, found: Sequence[RecordedMarker]) -> Any:
    if not found:
        return None
    heads = [(text("column.start"), ""), (text("column.service"), ""), (text("health.kind"), ""), ("", "")]
    rows = [
        [
            moment(one.time_unix_ns),
            one.service or DASH,
            text.or_else(f"condition.{one.kind}", one.kind),
            one.text or f"{one.was or DASH} → {one.became}",
        ]
        for one in found
    ]
    return panel(text("regressions.markers"), newest_words(text, len(found)), table(heads, rows))


def _row(text: Text, one: WindowVerdict) -> Any:
    span = {"since": one.since_unix_ns, "until": one.until_unix_ns, "service": one.service}
    head = [
        html.Strong(one.service or text("service.unnamed")),
        html.Span(text("regressions.slower", relative=growth(one.relative))),
        html.Span(f"{moment(one.since_unix_ns)} – {moment(one.until_unix_ns)[11:]}", className="tt-caption"),
    ]
    links = [
        link(text(f"nav.{name}"), href=Address(**span).href(f"/{name}"), className="tt-button is-small")
        for name in ("diagnosis", "compare")
    ]
    return html.Div(
        [
            html.Span("▲", className="tt-rank tt-bad"),
            html.Div(
                [
                    html.Div(head, className="tt-card-head"),
                    kept_verdict(text, one.verdict) if one.verdict else None,
                ]
            ),
            html.Div([links[0], " ", links[1]]),
        ],
        className="tt-finding",
    )

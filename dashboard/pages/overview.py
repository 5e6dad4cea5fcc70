"""Overview: in one sentence a service, what is slow and which stage makes it so; then the figures behind the
sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries import Overview, Window, overview, resolve_window, series
from tailtrace.analytics.queries.conditions import conditions
from tailtrace.analytics.queries.movers import movers
from tailtrace.analytics.queries.overview import ServiceOverview, StageSplit
from tailtrace.analytics.queries.percentiles import Percentile
from tailtrace.analytics.queries.recorded import RecordedChange, recorded_changes, recorded_markers
from tailtrace.analytics.queries.together import together
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.figures import chart, percentile_figure, percentile_key, rate_figure, shares_figure
from tailtrace.dashboard.components.later import later
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.markers import mark
from tailtrace.dashboard.components.marks import percentile_mark, simulated_mark
from tailtrace.dashboard.components.page import condition_words
from tailtrace.dashboard.components.split_bars import split_panel
from tailtrace.dashboard.components.stage_bar import legend, mini_bar
from tailtrace.dashboard.format import count, duration, moment, rate, share
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.pages.overview_words import Trouble, sentence, troubles
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.stages import NAMES, UNEXPLAINED

_SENTENCES: Final = 6
_ROWS: Final = 50
_LEGEND_FROM: Final = 0.01  # stages that never reach 1 % are drawn but not named


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    """The page; the first-run page while nothing is stored."""
    window = resolve_window(store, since=address.since or None, until=address.until or None, span=address.range or None)
    if window is None:
        return first_run(text, settings)
    calls: list[Callable[[], Any]] = [
        partial(overview, store, window, is_root=address.is_root),
        partial(movers, store, window, is_root=address.is_root),
        partial(recorded_changes, store, window.since_ns, window.until_ns),
    ]
    figures, moved, changes = together(calls)
    focus = next(
        (one for one in figures.services if one.service == address.service),
        figures.services[0] if figures.services else None,
    )
    if focus is None:
        return _nothing(text, address, window)
    return html.Div(
        [
            _head(text, address, window, figures),
            _sentences(text, figures, troubles(figures, moved, changes)),
            _table(text, address, figures, focus.service),
            _charts(store, text, address, window, focus, changes),
            later(text, "movers", since=str(window.since_ns), until=str(window.until_ns), root=address.root),
            later(text, "idle", since=str(window.since_ns), until=str(window.until_ns)),
        ],
        className="tt-page",
    )


def _sentences(text: Text, figures: Overview, trouble: dict[str, Trouble]) -> Any:
    """Services in trouble first, then the busiest."""
    ordered = sorted(figures.services, key=lambda one: one.service not in trouble)
    shown = [sentence(text, one, trouble.get(one.service)) for one in ordered[:_SENTENCES]]
    more = len(ordered) - len(shown)
    rest = html.Span(text("overview.more", n=count(more)), className="tt-caption") if more > 0 else None
    return html.Div([*shown, rest], className="tt-sentences")


def _head(text: Text, address: Address, window: Window, figures: Overview) -> Any:
    every = address.is_root is None
    switch = link(
        text("overview.entries" if every else "overview.all_services"),
        href=address.href("/", root=None if every else "any"),
        className="tt-button is-small",
    )
    return html.Div(
        [
            html.H1(text("nav.overview")),
            simulated_mark(text) if any(one.simulated for one in figures.services) else None,
            html.Span(_range_words(text, window), className="tt-caption"),
            switch,
            _copy_link(text, address, window),
        ],
        className="tt-page-head",
    )


def _range_words(text: Text, window: Window) -> str:
    return text("range.words", since=moment(window.since_ns), until=moment(window.until_ns))


def _copy_link(text: Text, address: Address, window: Window) -> Any:
    """A link with absolute times: what it shows stays what was seen."""
    frozen = address.href("/", range=None, since=window.since_ns, until=window.until_ns)
    return html.Button(text("copy.link"), className="tt-button is-small", **data(copy_link=frozen))


def _nothing(text: Text, address: Address, window: Window) -> Any:
    return html.Div(
        [
            html.H1(text("overview.none")),
            html.P(_range_words(text, window)),
            link(
                text("overview.newest"),
                href=address.href("/", since=None, until=None, range="24h"),
                className="tt-button",
            ),
        ],
        className="tt-notice",
    )


def _table(text: Text, address: Address, figures: Overview, focus: str) -> Any:
    heads = (
        ("column.service", "", 1),
        ("column.rate", "is-number", 1),
        ("column.failed", "is-number", 1),
        ("column.cancelled", "is-number", 1),
        ("column.duration", "is-group", 3),
        ("column.ttft", "is-group", 3),
        ("column.tpot", "is-group", 3),
        ("column.split", "is-split", 1),
    )
    second = [html.Th(name, className="is-number") for _ in range(3) for name in ("P50", "P95", "P99")]
    top = [html.Th(text(key), className=kind, colSpan=span, rowSpan=1 if span == 3 else 2) for key, kind, span in heads]
    # The head says it when all of them are simulated.
    marked = len({one.simulated for one in figures.services}) > 1
    rows = [_row(text, address, one, one.service == focus, marked) for one in figures.services[:_ROWS]]
    shown = {
        part.stage
        for one in figures.services[:_ROWS]
        for split in one.duration_split
        for part in split.stages
        if part.share >= _LEGEND_FROM
    }
    ordered = [stage for stage in NAMES if stage in shown] + [UNEXPLAINED]
    note = text("overview.outcomes", outcomes=", ".join(text.outcome(one) for one in figures.outcomes))
    if len(figures.services) > _ROWS:
        note += " " + text("showing", shown=count(_ROWS), total=count(len(figures.services)))
    return html.Section(
        [
            html.Div(
                html.Table([html.Thead([html.Tr(top), html.Tr(second)]), html.Tbody(rows)], className="tt-table"),
                className="tt-scroll",
            ),
            html.Div([legend(text, ordered), html.Span(note, className="tt-caption")], className="tt-table-foot"),
        ],
        className="tt-panel",
        **aria(label=text("overview.table")),
    )


def _row(text: Text, address: Address, one: ServiceOverview, focused: bool, marked: bool) -> Any:
    """A service; `marked`: rows say themselves whether they are simulated, as not all are."""
    numbers = [
        html.Td(percentile_mark(text, value), className="is-number")
        for group in (one.duration, one.ttft, one.tpot)
        for value in _three(group)
    ]
    anchor = link(
        one.service or text("service.unnamed"), href=address.href("/", service=one.service), className="tt-strong"
    )
    return html.Tr(
        [
            html.Td([anchor, simulated_mark(text) if marked and one.simulated else None]),
            html.Td(
                rate(one.per_second), className="is-number", title=text("overview.requests", n=count(one.requests))
            ),
            html.Td(
                share(one.error_share), className="is-number" + (" is-bad" if (one.error_share or 0) > 0.01 else "")
            ),
            html.Td(share(one.cancelled_share), className="is-number"),
            *numbers,
            html.Td(_splits(text, one.duration_split), className="is-split"),
        ],
        className="is-current" if focused else "",
    )


def _splits(text: Text, splits: list[StageSplit]) -> Any:
    """P50 above P99 on one scale, each divided among stages."""
    longest = max((split.value_ns for split in splits), default=0)
    return [
        html.Div(
            [
                html.Span(f"P{split.q * 100:.0f}", className="tt-split-name"),
                mini_bar(
                    text,
                    split.stages,
                    split.unexplained_ns,
                    split.value_ns,
                    width=split.value_ns / longest if longest else 0,
                ),
                html.Span(duration(split.value_ns), className="tt-split-value"),
            ],
            className="tt-split",
        )
        for split in splits
    ]


def _charts(
    store: Store,
    text: Text,
    address: Address,
    window: Window,
    focus: ServiceOverview,
    begun: Sequence[RecordedChange],
) -> Any:
    calls: list[Callable[[], Any]] = [
        partial(series, store, window, focus.service, is_root=address.is_root),
        partial(conditions, store, window, focus.service),
        partial(recorded_markers, store, window.since_ns, window.until_ns),
    ]
    data, shared, deploys = together(calls)
    own = [one for one in begun if one.service == focus.service]

    def lines(columns: Sequence[Sequence[Percentile]], metric: str) -> dict[str, Any]:
        there = [one for one in own if one.metric == metric]
        return mark(percentile_figure(text, data, columns), text, deploys, there, focus.service)

    outcomes = text("overview.outcomes_short")
    requests = address.only("range", "since", "until", "root").href("/requests", service=focus.service, order="slowest")
    kept = Address(range=address.range, since=address.since, until=address.until, service=focus.service)
    drawn = [one.stage for one in data.stages if max((part or 0.0) for part in one.share) >= _LEGEND_FROM]
    key = percentile_key()
    panels = [
        chart(
            "shares",
            text("chart.shares"),
            outcomes,
            mark(shares_figure(text, data), text, deploys, service=focus.service),
            legend(text, drawn),
            wide=True,
            height=210,
            over_time=True,
        ),
        chart("duration", text("chart.duration"), key, lines(data.percentiles, "duration"), over_time=True),
    ]
    for metric, columns in (("ttft", data.ttft_percentiles), ("tpot", data.tpot_percentiles)):
        if any(point.n for point in columns[0]):
            panels.append(
                chart(metric, text(f"chart.{metric}"), percentile_key(), lines(columns, metric), over_time=True)
            )
    rates = mark(rate_figure(text, data), text, deploys, service=focus.service)
    panels.append(chart("rate", text("chart.rate"), text("chart.all_outcomes"), rates, over_time=True))
    return html.Section(
        [
            html.Div(
                [
                    html.H2(focus.service or text("service.unnamed"), className="tt-section"),
                    simulated_mark(text) if focus.simulated else None,
                    html.Span(condition_words(text, shared), className="tt-caption"),
                    *[
                        link(text(f"nav.{key}"), href=kept.href(f"/{key}"), className="tt-button is-small")
                        for key in ("diagnosis", "compare")
                    ],
                    link(text("overview.slowest"), href=requests, className="tt-button is-small"),
                ],
                className="tt-page-head",
            ),
            split_panel(text, focus.duration_split),
            html.Div(panels, className="tt-charts" if len(panels) == 4 else "tt-charts has-two"),
        ],
        className="tt-page",
    )


def _three(group: Sequence[Percentile]) -> list[Percentile | None]:
    """P50, P95 and P99, or three unknowns."""
    return list(group) if group else [None, None, None]

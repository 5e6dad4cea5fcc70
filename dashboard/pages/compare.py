"""Compare: the bridge from one percentile to another, what is traffic and what is the service, stage by stage."""

from __future__ import annotations

from typing import Any, Final

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries.compare import Comparison, Condition, Group, PercentileChange, compare
from tailtrace.analytics.queries.selection import Selection, parse_filters
from tailtrace.analytics.queries.window import parse_time
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.bridge import bridge_chart
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import Scope, notice, page_head, panel, scope_of, service_controls, table, tag
from tailtrace.dashboard.components.request_filters import box
from tailtrace.dashboard.components.shell import picker
from tailtrace.dashboard.format import DASH, count, duration, moment, share
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/compare"
_HOUR: Final = 3_600_000_000_000
_BEFORE: Final = {"previous": 0, "hour": _HOUR, "day": 24 * _HOUR, "week": 168 * _HOUR}


def controls(store: Store, text: Text, address: Address) -> Any:
    """B is the page's range; A is chosen here."""
    return service_controls(
        store, text, address,
        dmc.SegmentedControl(
            id={"type": "filter", "key": "state"},
            data=[{"value": key, "label": text(f"compare.{key}")} for key in _BEFORE],
            value=address.state if address.state in _BEFORE else "previous", size="xs",
            **aria(label=text("compare.against")),
        ),
        picker(text, "a_since", address.a_since, inline=True),
        picker(text, "a_until", address.a_until, inline=True),
        box(text, "a_filter", address.a_filter, 150, title=text("compare.filter.hint")),
        box(text, "b_filter", address.b_filter, 150, title=text("compare.filter.hint")),
    )  # fmt: skip


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    """Duration and TTFT, each percentile that both sides have."""
    scope = scope_of(store, address)
    if scope is None:
        return first_run(text, settings)
    a, b = _sides(address, scope)
    found = compare(store, a, b)
    swapped = address.href(
        _PATH, since=a.since_ns, until=a.until_ns, range=None, a_since=b.since_ns, a_until=b.until_ns,
        a_filter=address.b_filter, b_filter=address.a_filter, state=None, service=scope.service,
    )  # fmt: skip
    head = page_head(text, address, _PATH, text("nav.compare"), scope,
                     link(text("compare.swap"), href=swapped, className="tt-button is-small"))  # fmt: skip
    if not found.changes:
        return html.Div([head, _groups(text, found), notice(text("compare.none"), text("compare.none.hint"))],
                        className="tt-page")  # fmt: skip
    shown = next((one for one in found.changes if one.metric == (address.metric or "duration") and
                  f"{one.q:g}" == (address.q or "0.95")), found.changes[0])  # fmt: skip
    return html.Div(
        [
            head,
            _groups(text, found),
            _sentence(text, shown),
            bridge_chart(text, shown),
            html.Div([_changes(text, address, found, shown), _conditions(text, found)], className="tt-two"),
        ],
        className="tt-page",
    )


def _sides(address: Address, scope: Scope) -> tuple[Selection, Selection]:
    b_since, b_until = scope.window.since_ns, scope.window.until_ns
    back = _BEFORE.get(address.state, 0) or b_until - b_since
    a_since = parse_time(address.a_since) if address.a_since else max(0, b_since - back)
    a_until = parse_time(address.a_until) if address.a_until else max(a_since + 1, b_until - back)
    same = {"version": address.version, "model": address.model, "route": address.route}
    filters = {name: value for name, value in same.items() if value}
    of_a = {**filters, **parse_filters(address.a_filter.split())}
    of_b = {**filters, **parse_filters(address.b_filter.split())}
    return (Selection(scope.service, a_since, a_until, of_a), Selection(scope.service, b_since, b_until, of_b))


def _groups(text: Text, found: Comparison) -> Any:
    def one(name: str, group: Group, common: float) -> list[Any]:
        said = ", ".join(f"{key}={value}" for key, value in group.filters.items()) or DASH
        span = f"{moment(group.since_unix_ns)} – {moment(group.until_unix_ns)}"
        return [name, span, said, count(group.n), share(common)]

    heads = [("", ""), (text("range.label.short"), ""), (text("compare.filter"), ""),
             (text("column.rate"), "is-number"), (text("compare.common"), "is-number")]  # fmt: skip
    return panel(text("compare.sides"), text("compare.strata", n=count(found.strata)),
                 table(heads, [one("A", found.a, found.common_a), one("B", found.b, found.common_b)]))  # fmt: skip


def _sentence(text: Text, one: PercentileChange) -> Any:
    worst = max(one.stages, key=lambda term: term.change_ns, default=None)
    traffic = sum(term.change_ns for term in one.traffic)
    words = text(
        "compare.sentence", q=f"P{one.q * 100:g}", metric=text(f"chart.{one.metric}"), a=duration(one.a_ns),
        b=duration(one.b_ns), traffic=_signed(traffic), within=_signed(one.within_ns),
    )  # fmt: skip
    more = text("compare.most", stage=text.stage(worst.name), ns=_signed(worst.change_ns)) if (
        worst and worst.change_ns > 0) else ""  # fmt: skip
    marks = [tag(text("compare.simpson"), "warn")] if one.simpson else []
    if one.hollow:
        marks.append(tag(text("compare.hollow"), "warn"))
    return html.P([words, " ", more, " ", *marks], className="tt-sentence")


def _signed(ns: int) -> str:
    return ("+" if ns > 0 else "−" if ns < 0 else "") + duration(abs(ns))


def _changes(text: Text, address: Address, found: Comparison, shown: PercentileChange) -> Any:
    heads = [("", ""), ("A", "is-number"), ("B", "is-number"), (text("compare.change"), "is-number"),
             (text("compare.traffic"), "is-number"), (text("compare.within"), "is-number")]  # fmt: skip
    rows = []
    for one in found.changes:
        name = f"{text(f'chart.{one.metric}')} P{one.q * 100:g}" + (" ◂" if one is shown else "")
        rows.append(
            [
                link(name, href=address.href(_PATH, metric=one.metric, q=f"{one.q:g}")),
                duration(one.a_ns), duration(one.b_ns), _signed(one.change_ns),
                _signed(sum(term.change_ns for term in one.traffic)), _signed(one.within_ns),
            ]
        )  # fmt: skip
    return panel(text("compare.percentiles"), "", table(heads, rows))


def _conditions(text: Text, found: Comparison) -> Any:
    def side(name: str, values: Any) -> str:
        return text("list").join(f"{text.value(name, one.value)[:20] or DASH} {share(one.share)}" for one in values[:3])

    def row(one: Condition) -> list[Any]:
        return [text(f"condition.{one.name}"), side(one.name, one.a), side(one.name, one.b), share(one.distance)]

    heads = [(text("compare.condition"), ""), ("A", "is-wrapped"), ("B", "is-wrapped"),
             (text("compare.distance"), "is-number")]  # fmt: skip
    body = table(heads, [row(one) for one in found.conditions]) if found.conditions else html.P(text("compare.same"))
    return panel(text("compare.conditions"), "", body)

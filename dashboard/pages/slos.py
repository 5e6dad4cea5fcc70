"""SLOs: how many requests were good, what is left of the error budget, how fast it burns."""

from __future__ import annotations

import time
from typing import Any, Final

from dash import html

from tailtrace.analytics.alerting import book
from tailtrace.analytics.queries.goals import goals_of
from tailtrace.analytics.queries.objectives import Burn, Hour, Objective, objective, objectives
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.axes import base_layout
from tailtrace.dashboard.components.figures import chart
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import notice, panel, table, tag
from tailtrace.dashboard.components.rule_parts import STATES
from tailtrace.dashboard.format import DASH, count, duration, growth, iso, moment, share
from tailtrace.dashboard.permission import may_write, read_only_note
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/slos"
_HOUR_NS: Final = 3_600_000_000_000


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    kept = book.load(store, settings.alerts_file)
    rules = {name: rule for name, rule in sorted(kept.rules.items()) if rule.kind == "slo"}
    new = link(text("slos.new"), href=Address(kind="slo").href("/rules"), className="tt-button is-small")
    head = html.Div([html.H1(text("nav.slos")), new if may_write() else None], className="tt-page-head")
    if not rules:
        return html.Div([head, read_only_note(text), notice(text("slos.none"), text("slos.none.hint"))],
                        className="tt-page")  # fmt: skip
    now_ms = time.time_ns() // 1_000_000
    found = objectives(store, list(rules.values()), now_ms, goals_of(settings.goals))
    if not found:
        return html.Div([head, notice(text("slos.no_data"), text("slos.no_data.hint"))], className="tt-page")
    chosen = next((one for one in found if (one.rule, one.service) == (address.id, address.service)), found[0])
    detail = objective(store, rules[chosen.rule], chosen.service, now_ms)
    return html.Div(
        [head, read_only_note(text), _list(text, found, chosen), _detail(text, detail)], className="tt-page"
    )


def _list(text: Text, found: list[Objective], chosen: Objective) -> Any:
    number = "is-number"
    heads = [(text("form.name"), ""), (text("column.service"), ""), (text("slos.goal"), ""),
             (text("slos.good"), number), (text("slos.left"), number), ("", "is-share"), (text("slos.burn"), number),
             (text("regressions.state"), "")]  # fmt: skip
    rows = [_row(text, one, one is chosen) for one in found]
    return panel(text("slos.all"), text("slos.days"), table(heads, rows))


def _row(text: Text, one: Objective, current: bool) -> list[Any]:
    left = one.budget_left
    width = 100 * min(1.0, max(0.0, left or 0.0))
    colour = "var(--good)" if (left or 0) > 0.25 else "var(--warn)" if (left or 0) > 0 else "var(--bad)"
    fastest = max((burn.long for burn in one.burns if burn.long is not None), default=None)
    return [
        link(("▸ " if current else "") + one.rule, href=Address(id=one.rule, service=one.service).href(_PATH)),
        one.service, goal(text, one), percent(one.good), _left(left),
        html.Div(html.I(style={"width": f"{width:.1f}%", "background": colour}), className="tt-pair-bars"),
        DASH if fastest is None else f"{fastest:.1f}×",
        tag(text.or_else(f"rule.state.{one.state}", one.state), STATES.get(one.state, "")),
    ]  # fmt: skip


def _left(left: float | None) -> str:
    """What is left of a budget; below nothing when it is overspent."""
    return share(left) if left is None or left >= 0 else growth(left)


def percent(value: float | None) -> str:
    """Shares near 1 with the digits that an objective has."""
    return DASH if value is None else f"{100 * value:.3f}".rstrip("0").rstrip(".") + " %"


def goal(text: Text, one: Objective) -> str:
    """`99 % first token within 2.00 s`, `95 % at least 2,000 tokens/s`."""
    if one.tokens_per_s is not None:
        return f"{percent(one.objective)} {text('slos.tokens_per_s', least=count(round(one.tokens_per_s)))}"
    sli = text.or_else(f"choice.{one.sli}", one.sli)
    limits = ", ".join(
        f"{text.or_else(f'chart.{name}', name)} ≤ {duration(ns)}" if one.sli == "goodput" else f"≤ {duration(ns)}"
        for name, ns in one.limits_ns.items()
    )
    return f"{percent(one.objective)} {sli} {limits}".strip()


def _detail(text: Text, one: Objective) -> Any:
    heads = [(text("slos.windows"), ""), (text("slos.long"), "is-number"), (text("slos.short"), "is-number"),
             (text("rules.limit"), "is-number"), (text("rules.requests"), "is-number"),
             (text("regressions.state"), "")]  # fmt: skip
    edit = link(text("slos.rule"), href=Address(id=one.rule).href("/rules"), className="tt-button is-small")
    as_of = text("slos.as_of", time=moment(one.as_of_unix_ns))
    return html.Div(
        [
            panel(f"{one.rule} · {one.service}", [as_of, " ", edit],
                  table(heads, [_burn(text, burn) for burn in one.burns]),
                  html.P(text("slos.burn.hint"), className="tt-muted")),
            _hours(text, one, one.hours or []),
        ],
        className="tt-page", **aria(label=one.rule),
    )  # fmt: skip


def _span(minutes: int) -> str:
    """`5 min`, `6 h`."""
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"


def _burn(text: Text, one: Burn) -> list[Any]:
    def shown(value: float | None) -> str:
        return DASH if value is None else f"{value:.2f}×"

    state = tag(text("rule.state.firing"), "bad") if one.firing else tag(text("rule.state.clear"), "good")
    windows = f"{_span(one.long_minutes)} / {_span(one.short_minutes)}"
    return [windows, shown(one.long), shown(one.short), f"{one.limit:g}×", count(one.n), state]


def _hours(text: Text, one: Objective, hours: list[Hour]) -> Any:
    """What of the budget is left over 30 days, and the bad share of each hour."""
    if not hours:
        return None
    whole = sum(hour.n for hour in hours) * (1 - one.objective)
    left, spent = [], 0.0
    for hour in hours:
        spent += hour.bad
        left.append(100 * (1 - spent / whole) if whole else None)
    times = [iso(hour.start_unix_ns) for hour in hours]
    bad = [100 * hour.bad / hour.n if hour.n else None for hour in hours]
    begin, end = int(hours[0].start_unix_ns), int(hours[-1].start_unix_ns) + _HOUR_NS
    layout = base_layout(begin, end, _HOUR_NS, f"slo/{one.rule}/{one.service}")
    layout["yaxis"].update({"ticksuffix": " %", "rangemode": "tozero"})
    layout["yaxis2"] = {**layout["yaxis"], "overlaying": "y", "side": "right", "showgrid": False, "tickmode": "auto"}
    layout["margin"]["r"] = 52
    traces = [
        {"type": "bar", "x": times, "y": bad, "name": text("slos.bad"), "marker": {"color": "var(--p50)"},
         "customdata": [f"{hour.bad} / {hour.n}" for hour in hours], "hovertemplate": "%{customdata}"},
        {"type": "scatter", "mode": "lines", "x": times, "y": left, "yaxis": "y2", "name": text("slos.left"),
         "line": {"color": "var(--p99)", "width": 1.6}, "hovertemplate": "%{y:.1f} %"},
    ]  # fmt: skip
    key = html.Span(
        [html.Span([html.I(style={"background": colour}), name]) for colour, name in
         (("var(--p50)", text("slos.bad")), ("var(--p99)", text("slos.left")))], className="tt-key")  # fmt: skip
    return chart("slo", text("slos.budget"), key, {"data": traces, "layout": layout}, wide=True, height=220)

"""What if: a stage faster, more replicas, more traffic; the queue replayed, and the bound without it."""

from __future__ import annotations

from typing import Any, Final

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries.selection import select
from tailtrace.analytics.queries.whatif import Change, Prediction, WhatIf, whatif
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.page import notice, page_head, panel, scope_of, service_controls, table, tag
from tailtrace.dashboard.components.request_filters import box
from tailtrace.dashboard.format import DASH, count, duration, growth, share
from tailtrace.dashboard.pages.first_run import first_run
from tailtrace.dashboard.text import Text
from tailtrace.errors import Rejected
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/what-if"
# key of the address, lowest, highest, step
_STAGES: Final = ("queue", "prefill", "decode", "tokenize")
_MARKS: Final = [{"value": value, "label": f"{value:g}×"} for value in (0, 0.5, 1, 2)]


def controls(store: Store, text: Text, address: Address) -> Any:
    """A slider a stage, one for traffic, one for replicas."""
    sliders = [
        _slider(f"x_{stage}", text.stage(stage), getattr(address, f"x_{stage}"), 0, 2, 0.05, _MARKS)
        for stage in _STAGES
    ]
    rates = [{"value": value, "label": f"{value:g}×"} for value in (0.5, 1, 2, 3)]
    sliders.append(_slider("rate", text("whatif.rate"), address.rate, 0.5, 3, 0.05, rates))
    steps = [{"value": value, "label": f"{value:+d}" if value else "0"} for value in (-2, 0, 2, 4, 8)]
    sliders.append(_slider("replicas", text("whatif.replicas"), address.replicas, -2, 8, 1, steps, neutral=0))
    more = box(text, "factor", address.factor, 190, title=text("whatif.more.hint"))
    return html.Div([service_controls(store, text, address, more), html.Div(sliders, className="tt-form")])


def _slider(
    key: str, label: str, value: str, low: float, high: float, step: float, marks: Any, *, neutral: float = 1
) -> Any:
    return html.Div(
        [
            html.Span(label),
            dmc.Slider(
                id={"type": "filter", "key": key}, value=_number(value, neutral), min=low, max=high, step=step,
                marks=marks, size="sm", updatemode="mouseup", thumbLabel=label,
            ),
        ],
        className="tt-slide",
    )  # fmt: skip


def _number(text: str, neutral: float) -> float:
    try:
        return float(text)
    except ValueError:
        return neutral


def _change(address: Address) -> Change:
    factors = {stage: _number(getattr(address, f"x_{stage}"), 1.0) for stage in _STAGES}
    for pair in address.factor.replace(",", " ").split():
        name, _, value = pair.partition("=")
        try:
            factors[name] = float(value)
        except ValueError as error:
            raise Rejected(f"a stage is STAGE=FACTOR, like auth=0.5; got {pair[:40]!r}") from error
    return Change(
        {stage: factor for stage, factor in factors.items() if factor != 1.0},
        int(_number(address.replicas, 0)), 0.0, _number(address.rate, 1.0),
    )  # fmt: skip


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    scope = scope_of(store, address)
    if scope is None:
        return first_run(text, settings)
    found = whatif(store, select(scope.window, scope.service), _change(address))
    return html.Div(
        [
            page_head(text, address, _PATH, text("nav.whatif"), scope),
            html.P(_sentence(text, found), className="tt-sentence"),
            _predictions(text, found)
            if found.predictions
            else notice(text("whatif.none"), text.said(found.reason or "")),
            html.Div([_means(text, found), _ground(text, found)], className="tt-two"),
        ],
        className="tt-page",
    )


def _sentence(text: Text, found: WhatIf) -> list[Any]:
    shown = next((one for one in found.predictions if (one.metric, one.q) == ("duration", 0.95)), None)
    if shown is None:
        return [text("whatif.none")]
    words: list[Any] = [text("whatif.sentence", now=duration(shown.now_ns), then=duration(shown.predicted_ns))]
    if found.stable is False:
        words += [" ", tag(text("whatif.unstable"), "bad")]
    if found.method != "replay":
        words += [" ", tag(text("whatif.retimed", reason=text.said(found.reason or "")), "warn")]
    return words


def _predictions(text: Text, found: WhatIf) -> Any:
    longest = max(max(one.now_ns, one.predicted_ns, one.retime_ns) for one in found.predictions) or 1
    heads = [("", ""), (text("whatif.now"), "is-number"), (text("whatif.then"), "is-number"),
             (text("whatif.change"), "is-number"), (text("whatif.bound"), "is-number"), ("", "is-share")]  # fmt: skip
    return panel(
        text("whatif.predictions"), text("whatif.predictions.hint"),
        table(heads, [_prediction(text, one, longest) for one in found.predictions]),
    )  # fmt: skip


def _prediction(text: Text, one: Prediction, longest: int) -> list[Any]:
    relative = (one.predicted_ns - one.now_ns) / one.now_ns if one.now_ns else 0.0
    name = f"{text(f'chart.{one.metric}')} P{one.q * 100:g}"
    bars = [
        html.I(style={"width": f"{100 * ns / longest:.1f}%", "background": colour})
        for ns, colour in ((one.now_ns, "var(--line-strong)"), (one.predicted_ns, "var(--accent)"))
    ]
    return [
        [name, " ", tag(text("compare.hollow"), "warn") if one.hollow else None],
        duration(one.now_ns), duration(one.predicted_ns), growth(relative), duration(one.retime_ns),
        html.Div(bars, className="tt-pair-bars"),
    ]  # fmt: skip


def _means(text: Text, found: WhatIf) -> Any:
    heads = [(text("column.stage"), ""), (text("whatif.now"), "is-number"), (text("whatif.then"), "is-number")]
    rows = [[text.stage(one.stage), duration(one.now_ns), duration(one.predicted_ns)] for one in found.means]
    return panel(text("whatif.means"), "", table(heads, rows))


def _ground(text: Text, found: WhatIf) -> Any:
    facts = (
        ("whatif.requests", count(found.n)),
        ("whatif.replicas.count", f"{found.replicas_now} → {found.replicas_then}"),
        ("whatif.load", f"{_load(found.load_now)} → {_load(found.load_then)}"),
        ("whatif.base_error", share(None if found.base_error is None else abs(found.base_error))),
        ("whatif.fitted", _fitted(text, found)),
    )
    return panel(
        text("whatif.ground"), "",
        html.Dl([html.Div([html.Dt(text(key)), html.Dd(value)]) for key, value in facts], className="tt-conditions"),
        html.Ul([html.Li(text.said(one)) for one in found.assumptions], className="tt-muted"),
    )  # fmt: skip


def _fitted(text: Text, found: WhatIf) -> str:
    """`engine steps (1,200)`; a dash where no step times were needed."""
    if not found.fitted_to:
        return DASH
    return f"{text.or_else(f'whatif.fitted.{found.fitted_to}', found.fitted_to)} ({count(found.fitted)})"


def _load(value: float | None) -> str:
    return share(value)

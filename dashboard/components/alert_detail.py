"""An alert's evidence: before and after, the stages that grew, examples, who was told. Its body is JSON of several
kinds, so what a kind lacks is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from dash import html

from tailtrace.analytics.queries.alerts import Alert
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import panel, table, tag
from tailtrace.dashboard.components.verdict import kept_verdict
from tailtrace.dashboard.format import clock, count, duration, share
from tailtrace.dashboard.text import Text


def alert_detail(text: Text, alert: Alert) -> list[Any]:
    """The panels of one alert."""
    body = alert.body
    stages = [one for one in _list(body, "stages") if "stage" in one]
    return [
        html.Div([_figures(text, body), _links(text, body)], className="tt-two"),
        _stages(text, stages) if stages else None,
        _verdicts(text, _list(body, "verdicts")),
        _examples(text, _list(body, "examples")),
        _messages(text, alert),
    ]


def _list(body: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = body.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _figures(text: Text, body: Mapping[str, Any]) -> Any:
    before, after = body.get("before") or {}, body.get("after") or {}
    interval = body.get("interval_ns") or []
    facts: list[tuple[str, Any]] = [
        (text("column.service"), body.get("service") or None), (text("column.model"), body.get("model") or None),
        (text("gpus.quantity"), text.or_else(f"chart.{body.get('metric')}", str(body.get("metric") or "")) or None),
        (text("alert.before"), _of(before)), (text("alert.after"), _of(after)),
        (text("alert.change"), _signed(body.get("change_ns"))),
        (text("alert.interval"), f"{_signed(interval[0])} … {_signed(interval[1])}" if len(interval) == 2 else None),
        (text("alert.traffic"), share(body["traffic_share"]) if body.get("traffic_share") is not None else None),
        (text("alert.value"), duration(body["value_ns"]) if body.get("value_ns") else None),
        (text("rules.limit"), duration(body["limit_ns"]) if body.get("limit_ns") else None),
        (text("slos.burn"), f"{body['burn_rate']:.1f}×" if body.get("burn_rate") is not None else None),
        (text("rules.requests"), count(body["n"]) if body.get("n") is not None else None),
    ]  # fmt: skip
    shown = [html.Div([html.Dt(name), html.Dd(value)]) for name, value in facts if value is not None]
    return panel(text("alert.evidence"), "", html.Dl(shown, className="tt-conditions"))


def _of(side: Mapping[str, Any]) -> str | None:
    return f"{duration(side['ns'])} (n={count(side.get('n'))})" if side.get("ns") is not None else None


def _signed(ns: Any) -> str | None:
    return None if ns is None else f"{'+' if ns > 0 else '−'}{duration(abs(ns))}"


def _links(text: Text, body: Mapping[str, Any]) -> Any:
    """The addresses of the message, as paths here."""
    links = body.get("links") or {}
    made = []
    for name, address in links.items() if isinstance(links, Mapping) else ():
        parts = urlsplit(str(address))
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if path.startswith("/") and not path.startswith("//"):
            made.append(link(text.or_else(f"nav.{name}", str(name)), href=path, className="tt-button is-small"))
    return panel(text("alert.next"), "", html.Div(made, className="tt-ids")) if made else None


def _stages(text: Text, stages: Sequence[Mapping[str, Any]]) -> Any:
    longest = max((max(one.get("before_ns", 0), one.get("after_ns", 0)) for one in stages), default=1) or 1
    rows = []
    for one in stages:
        before, after = one.get("before_ns", 0), one.get("after_ns", 0)
        bars = [
            html.I(style={"width": f"{100 * max(0, ns) / longest:.1f}%", "background": colour})
            for ns, colour in ((after, f"var(--stage-{one['stage']})"), (before, "var(--line-strong)"))
        ]
        words = html.Span([html.Strong(duration(after)), f" / {duration(before)} · {share(one.get('share'))}"],
                          className="tt-pair-words")  # fmt: skip
        name = html.Span(text.stage(str(one["stage"])), className="tt-pair-name")
        rows.append(html.Div([name, html.Div(bars, className="tt-pair-bars"), words], className="tt-pair"))
    return panel(text("alert.stages"), text("alert.stages.hint"), *rows)


def _verdicts(text: Text, found: Sequence[Mapping[str, Any]]) -> Any:
    """What the windows of the alert waited for."""
    told = [kept_verdict(text, one) for one in found if one.get("cause")]
    return panel(text("alert.causes"), "", *told) if told else None


def _examples(text: Text, examples: Sequence[Mapping[str, Any]]) -> Any:
    rows = [
        [link(clock(one.get("start_unix_ns")), href=f"/requests/{one['trace_id']}"), duration(one.get("duration_ns")),
         html.Code(str(one["trace_id"]))]
        for one in examples if str(one.get("trace_id", "")).isalnum()
    ]  # fmt: skip
    heads = [(text("column.start"), ""), (text("column.duration"), "is-number"), (text("id.trace"), "")]
    return panel(text("alert.examples"), "", table(heads, rows)) if rows else None


def _messages(text: Text, alert: Alert) -> Any:
    if not alert.messages:
        return panel(text("alert.messages"), "", html.P(text("alert.no_messages"), className="tt-muted"))
    heads = [(text("alert.event"), ""), (text("nav.channels"), ""), (text("regressions.state"), ""),
             (text("alert.attempts"), "is-number"), ("", "")]  # fmt: skip
    rows = [
        [text.or_else(f"event.{one.event}", one.event), one.channel, tag(text.or_else(f"sent.{one.state}", one.state)),
         count(one.attempts), text.said(one.error)]
        for one in alert.messages
    ]  # fmt: skip
    return panel(text("alert.messages"), "", table(heads, rows))

"""Alerts: what is open, what was, and which rule said so."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries.recorded import RecordedEpisode, recorded_episodes
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.page import notice, panel, tag
from tailtrace.dashboard.format import count, duration, moment
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

STATES: Final = ("previous", "open", "acknowledged", "resolved")  # the first stands for all
_KINDS: Final = {"open": "bad", "acknowledged": "warn", "resolved": "good"}


def controls(store: Store, text: Text, address: Address) -> Any:
    return html.Div(
        dmc.SegmentedControl(
            id={"type": "filter", "key": "state"},
            data=[{"value": state, "label": text(f"alerts.{state}")} for state in STATES],
            value=address.state if address.state in STATES else STATES[0],
            size="xs",
            **aria(label=text("alerts.state")),
        ),
        className="tt-filters",
    )


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    state = address.state if address.state in STATES[1:] else ""
    found = recorded_episodes(store, state=state)
    head = html.Div([html.H1(text("nav.alerts"))], className="tt-page-head")
    if not found:
        return html.Div([head, notice(text("alerts.none"), text("alerts.none.hint"))], className="tt-page")
    rows = [_row(text, one) for one in found]
    return html.Div([head, panel(text("alerts.episodes"), count(len(found)), *rows)], className="tt-page")


def _row(text: Text, one: RecordedEpisode) -> Any:
    facts = [text("alerts.opened", time=moment(one.opened_unix_ns))]
    if one.ended_unix_ns:
        length = int(one.ended_unix_ns) - int(one.opened_unix_ns)
        facts.append(text("alerts.ended", time=moment(one.ended_unix_ns), length=duration(length)))
    if one.muted_until_unix_ns:
        facts.append(text("alerts.muted", time=moment(one.muted_until_unix_ns)))
    if one.reopened:
        facts.append(text("alerts.reopened", n=count(one.reopened)))
    return html.Div(
        [
            html.Span("▲" if one.state == "open" else "●", className="tt-rank"),
            html.Div(
                [
                    html.Div(
                        [
                            html.Strong(one.summary or one.rule),
                            tag(text.or_else(f"alerts.{one.state}", one.state), _KINDS.get(one.state, "")),
                            tag(text("alerts.flapping"), "warn") if one.flapping else None,
                        ],
                        className="tt-card-head",
                    ),
                    html.Div([html.Span(fact) for fact in facts], className="tt-facts-inline"),
                ]
            ),
            html.Div([html.Span(one.rule, className="tt-caption"), " ", *_actions(text, one)]),
        ],
        className="tt-finding",
    )


def _actions(text: Text, one: RecordedEpisode) -> list[Any]:
    """Buttons that the browser sends to the API (assets/g_actions.js); the page draws itself anew."""
    address = f"/api/v1/alerts/{quote(one.id, safe='')}"
    actions = []
    if one.state == "open":
        actions.append(("acknowledge", f"{address}/acknowledge", "{}"))
    if one.state != "resolved":
        muted = bool(one.muted_until_unix_ns)
        actions.append(
            ("unmute", f"{address}/unmute", "{}") if muted else ("mute", f"{address}/mute", '{"until":"1h"}')
        )
    return [
        html.Button(text(f"alerts.do.{name}"), className="tt-button is-small", **data(post=path, body=body))
        for name, path, body in actions
    ]

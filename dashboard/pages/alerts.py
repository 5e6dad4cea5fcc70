"""Alerts: what is open, what was, and which rule said so."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries.alerts import get_alert
from tailtrace.analytics.queries.recorded import RecordedEpisode, recorded_episodes
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.action import action
from tailtrace.dashboard.components.alert_detail import alert_detail
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.components.page import newest_words, notice, panel, tag
from tailtrace.dashboard.format import count, duration, moment
from tailtrace.dashboard.permission import read_only_note
from tailtrace.dashboard.text import Text
from tailtrace.errors import NotFound
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

STATES: Final = ("previous", "open", "acknowledged", "resolved")  # the first stands for all
_MUTES: Final = ("1h", "8h", "1d")
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
    if address.id:
        return _one(store, text, address)
    state = address.state if address.state in STATES[1:] else ""
    found = recorded_episodes(store, state=state)
    head = html.Div([html.H1(text("nav.alerts"))], className="tt-page-head")
    if not found:
        return html.Div([head, notice(text("alerts.none"), text("alerts.none.hint"))], className="tt-page")
    rows = [_row(text, one) for one in found]
    return html.Div(
        [head, read_only_note(text), panel(text("alerts.episodes"), newest_words(text, len(found)), *rows)],
        className="tt-page",
    )


def _one(store: Store, text: Text, address: Address) -> Any:
    """One alert with its evidence."""
    back = link(text("alerts.back"), href=address.only("state").href("/alerts"), className="tt-button is-small")
    try:
        found = get_alert(store, address.id)
    except NotFound as error:
        return html.Div([html.H1(text("nav.alerts")), html.P(text.said(str(error))), back], className="tt-notice")
    return html.Div(
        [
            html.Div([html.H1(text("nav.alerts")), back], className="tt-page-head"),
            read_only_note(text),
            panel(text("alerts.episodes"), found.rule, _row(text, found)),
            *alert_detail(text, found),
        ],
        className="tt-page",
    )


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
                            link(
                                text.said(one.summary) or one.rule,
                                href=Address(id=one.id).href("/alerts"),
                                className="tt-strong",
                            ),
                            tag(text.or_else(f"alerts.{one.state}", one.state), _KINDS.get(one.state, "")),
                            tag(text("alerts.flapping"), "warn") if one.flapping else None,
                        ],
                        className="tt-card-head",
                    ),
                    html.Div([html.Span(fact) for fact in facts], className="tt-facts-inline"),
                ]
            ),
            html.Div([html.Span(one.rule, className="tt-caption"), *_actions(text, one)], className="tt-ids"),
        ],
        className="tt-finding",
    )


def _actions(text: Text, one: RecordedEpisode) -> list[Any]:
    path = f"/api/v1/alerts/{quote(one.id, safe='')}"
    made = []
    if one.state == "open":
        made.append(action(text("alerts.do.acknowledge"), f"{path}/acknowledge"))
    if one.state != "resolved" and one.muted_until_unix_ns:
        made.append(action(text("alerts.do.unmute"), f"{path}/unmute"))
    elif one.state != "resolved":
        made += [
            action(text("alerts.do.mute_for", span=span), f"{path}/mute", body=f'{{"until":"{span}"}}')
            for span in _MUTES
        ]
    return made

"""What stands around every page: navigation, time range, freshness, language, theme."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries import freshness
from tailtrace.dashboard.address import RANGES, REFRESH, Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.format import count, moment
from tailtrace.dashboard.text import LANGUAGES, Text
from tailtrace.ingest.store import Store

_NAVIGATION = (("overview", "/"), ("requests", "/requests"))


def sidebar(text: Text, address: Address, current: str) -> list[Any]:
    """Navigation and preferences; `current` is the key of the page that is shown."""
    carried = address.only("range", "since", "until")
    here = "requests" if current == "request" else current
    links = [
        link(
            text(f"nav.{key}"),
            href=carried.href(path),
            className="tt-nav-link" + (" is-current" if key == here else ""),
            **aria(current="page" if key == here else None),
        )
        for key, path in _NAVIGATION
    ]
    brand = [html.Img(src="/static/icon.svg", alt="", width=22, height=22), html.Span("Tailtrace")]
    return [
        html.A(text("skip"), href="#main", className="tt-skip"),
        link(brand, href="/", className="tt-brand"),
        html.Nav(links, className="tt-nav", **aria(label=text("nav.label"))),
        html.Div(_preferences(text), className="tt-preferences"),
    ]


def _preferences(text: Text) -> list[Any]:
    languages = [
        html.Button(name, className="tt-plain" + (" is-on" if code == text.language else ""), **data(language=code))
        for code, name in LANGUAGES.items()
    ]
    return [
        dmc.ColorSchemeToggle(
            lightIcon=html.Span(text("theme.light")),
            darkIcon=html.Span(text("theme.dark")),
            id="theme-toggle",
            variant="default",
            size="sm",
            w="100%",
            h=28,
            **aria(label=text("theme.switch")),
        ),
        html.Div(languages, className="tt-languages", role="group", **aria(label=text("language"))),
    ]


def range_controls(text: Text, address: Address) -> list[Any]:
    """The time range, ending at the newest data, and how often to look again."""
    absolute = bool(address.since)
    options = [{"value": value, "label": text(f"range.{value}")} for value in RANGES]
    if absolute:
        options.append({"value": "absolute", "label": text("range.absolute")})
    value = "absolute" if absolute else address.range or "1h"
    return [
        dmc.SegmentedControl(
            id={"type": "filter", "key": "range"},
            data=options,
            value=value if any(option["value"] == value for option in options) else "1h",
            size="xs",
            **aria(label=text("range.label")),
        ),
        dmc.Select(
            id={"type": "refresh", "key": "refresh"},
            data=[{"value": value, "label": text(f"refresh.{value}")} for value in REFRESH],
            persistence="tailtrace-refresh",
            value="off",
            size="xs",
            w=118,
            allowDeselect=False,
            **aria(label=text("refresh.label")),
        ),
    ]


def freshness_words(store: Store, text: Text) -> list[Any]:
    """Up to when the picture is complete, what is missing from it, and the time zone."""
    state = freshness(store)
    if state.newest_unix_ns is None:
        return [html.Span(text("zone"), className="tt-zone")]
    if state.complete_until_unix_ns:
        said = text("fresh.complete", time=moment(state.complete_until_unix_ns))
    else:
        said = text("fresh.newest", time=moment(state.newest_unix_ns))
    losses = [
        html.Span(text(f"fresh.{kind}", n=count(n)), className="tt-loss", title=text("fresh.hint"))
        for kind, n in (("rejected", state.rejected), ("dropped", state.dropped), ("orphaned", state.orphaned))
        if n
    ]
    return [html.Span(said, title=text("fresh.definition")), *losses, html.Span(text("zone"), className="tt-zone")]

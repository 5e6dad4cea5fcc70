"""What stands around every page: navigation, time range, freshness, language, theme."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from tailtrace.analytics.queries import freshness
from tailtrace.analytics.queries.window import parse_time
from tailtrace.dashboard.address import RANGES, REFRESH, Address
from tailtrace.dashboard.components.attributes import aria, data
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.format import count, moment, zone_name
from tailtrace.dashboard.text import LANGUAGES, Text
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

# Groups of pages in the order of use: look, ask why, be told, look after.
_NAVIGATION = (
    ("overview", "/"), ("requests", "/requests"), ("diagnosis", "/diagnosis"), ("compare", "/compare"),
    ("regressions", "/regressions"), ("whatif", "/what-if"), None,
    ("gpus", "/gpus"), ("replicas", "/replicas"), ("map", "/map"), None,
    ("alerts", "/alerts"), ("slos", "/slos"), ("rules", "/rules"), ("channels", "/channels"), None,
    ("health", "/health"), ("settings", "/settings"),
)  # fmt: skip

_SAID = ("progress", "cancel", "away", "again")


def sidebar(text: Text, address: Address, current: str) -> list[Any]:
    """Navigation and preferences; `current` is the key of the page that is shown."""
    carried = address.only("range", "since", "until", "service")
    here = "requests" if current == "request" else current
    links = [
        html.Hr(className="tt-nav-rule")
        if entry is None
        else link(
            text(f"nav.{entry[0]}"),
            href=carried.href(entry[1]),
            className="tt-nav-link" + (" is-current" if entry[0] == here else ""),
            **aria(current="page" if entry[0] == here else None),
        )
        for entry in _NAVIGATION
    ]
    brand = [html.Img(src="/static/icon.svg", alt="", width=22, height=22), html.Span("Tailtrace")]
    return [
        html.A(text("skip"), href="#main", className="tt-skip"),
        link(brand, href="/", className="tt-brand"),
        html.Nav(links, className="tt-nav", **aria(label=text("nav.label"))),
        html.Div(_preferences(text), className="tt-preferences"),
        # What assets/b_views.js says, so that its words live in the catalogue too.
        html.Div(
            id="words",
            hidden=True,
            **data(**{key: text(f"view.{key}") for key in _SAID}),
        ),
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
        html.Details(
            [
                html.Summary(text("range.choose"), className="tt-button is-small"),
                html.Div(
                    [picker(text, "since", address.since), picker(text, "until", address.until)], className="tt-drop"
                ),
            ],
            className="tt-details",
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


def picker(text: Text, key: str, value: str, *, inline: bool = False) -> Any:
    """A moment in the reader's zone; the address holds it in UTC. `inline` says its name inside instead of above."""
    return dmc.DateTimePicker(
        id={"type": "filter", "key": key},
        value=_picked(value),
        label=None if inline else text(f"range.{key}"),
        placeholder=text(f"range.{key}"),
        valueFormat="YYYY-MM-DD HH:mm:ss",
        monthLabelFormat="YYYY-MM",
        monthsListFormat="MM",
        withSeconds=True,
        clearable=True,
        size="xs",
        w=150 if inline else 210,
        debounce=600,
        popoverProps={"withinPortal": inline},
        **aria(label=text(f"range.{key}")),
    )


def _picked(value: str) -> str | None:
    """What a picker shows; nothing for an address that says no moment: the page itself says what was wrong."""
    try:
        return moment(parse_time(value)) if value else None
    except Rejected:
        return None


def freshness_words(store: Store, text: Text) -> list[Any]:
    """Up to when the picture is complete, what is missing from it, and the time zone."""
    state = freshness(store)
    if state.newest_unix_ns is None:
        return [_zone(text)]
    if state.complete_until_unix_ns:
        said = text("fresh.complete", time=moment(state.complete_until_unix_ns))
    else:
        said = text("fresh.newest", time=moment(state.newest_unix_ns))
    losses = [
        html.Span(text(f"fresh.{kind}", n=count(n)), className="tt-loss", title=text("fresh.hint"))
        for kind, n in (("rejected", state.rejected), ("dropped", state.dropped), ("orphaned", state.orphaned))
        if n
    ]
    return [html.Span(said, title=text("fresh.definition")), *losses, _zone(text)]


def _zone(text: Text) -> Any:
    return html.Span(text("zone", zone=zone_name()), className="tt-zone")

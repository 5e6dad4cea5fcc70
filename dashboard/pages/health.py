"""Health: how complete the picture is, what was lost, how much is stored and how much more may be."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries import freshness
from tailtrace.analytics.queries.freshness import Freshness
from tailtrace.analytics.queries.storage import Storage, storage
from tailtrace.analytics.queries.together import together
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.page import panel, table, tag
from tailtrace.dashboard.format import DASH, byte_count, count, duration, moment, rate, share
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

_PATH: Final = "/health"
_BUDGETED: Final = ("otel_", "engine_steps")


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    calls: list[Any] = [partial(freshness, store), partial(storage, store)]
    fresh, stored = together(calls)
    return html.Div(
        [
            html.Div([html.H1(text("nav.health"))], className="tt-page-head"),
            _services(text, fresh),
            html.Div([_losses(text, fresh), _storage(text, settings, stored)], className="tt-two"),
        ],
        className="tt-page",
    )


def _services(text: Text, fresh: Freshness) -> Any:
    number = "is-number"
    keys = ("health.requests", "health.spans", "health.newest", "health.lag", "health.complete")
    heads = [(text("column.service"), ""), *((text(key), number) for key in keys)]
    rows = [
        [one.service or text("service.unnamed"), rate(one.requests_per_second), rate(one.spans_per_second),
         moment(one.newest_unix_ns), duration(one.lag_p99_ns), moment(one.complete_until_unix_ns)]
        for one in fresh.services
    ]  # fmt: skip
    judged = fresh.judged_up_to_unix_ns
    caption = text("health.judged", time=moment(judged)) if judged else ""
    body = table(heads, rows) if rows else html.P(text("first.title"), className="tt-muted")
    return panel(text("health.services"), caption, body)


def _losses(text: Text, fresh: Freshness) -> Any:
    if not fresh.losses:
        return panel(text("health.losses"), "", html.P([tag(text("health.no_losses"), "good")]))
    number = "is-number"
    heads = [(text("column.service"), ""), (text("health.signal"), ""), (text("health.kind"), ""),
             (text("gpus.reason"), "is-wrapped"), (text("health.count"), number)]  # fmt: skip
    rows = [
        [
            one.service or DASH,
            text.or_else(f"signal.{one.signal}", one.signal),
            text.or_else(f"loss.{one.kind}", one.kind),
            text.or_else(f"lost.{one.reason}", one.reason),
            count(one.count),
        ]
        for one in fresh.losses
    ]
    return panel(text("health.losses"), text("fresh.hint"), table(heads, rows))


def _storage(text: Text, settings: ServerSettings, stored: Storage) -> Any:
    used = sum(one.bytes for one in stored.tables if one.table.startswith(_BUDGETED))
    part = used / settings.storage_budget_bytes if settings.storage_budget_bytes else 0.0
    number = "is-number"
    rows = [[html.Code(one.table), count(one.rows), byte_count(one.bytes), one.oldest or DASH] for one in stored.tables]
    heads = [(text("health.table"), ""), (text("health.rows"), number), (text("health.bytes"), number),
             (text("health.oldest"), number)]  # fmt: skip
    return panel(
        text("health.storage"),
        text("health.budget", used=byte_count(used), budget=byte_count(settings.storage_budget_bytes),
             part=share(part)),
        html.Div(
            html.I(style={"width": f"{min(100.0, 100 * part):.1f}%", "background": "var(--accent)"}),
            className="tt-pair-bars", style={"marginBottom": "8px"},
        ),
        html.P(_retention(text, settings), className="tt-muted"),
        table(heads, rows),
    )  # fmt: skip


def _retention(text: Text, settings: ServerSettings) -> str:
    """What goes when: by room, and by age where one is set."""
    said = [text("health.retention")]
    for key, days in (("spans", settings.retention_days), ("requests", settings.derived_retention_days)):
        if days:
            said.append(text(f"health.retention.{key}", days=count(days)))
    return " ".join(said)

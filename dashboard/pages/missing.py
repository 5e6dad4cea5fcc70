"""The page of an address that has none."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.dashboard.address import Address
from tailtrace.dashboard.components.link import link
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store


def draw(store: Store, settings: ServerSettings, text: Text, pathname: str, address: Address) -> Any:
    """What was asked for, and a way back."""
    return html.Div(
        [
            html.H1(text("missing.title")),
            html.P(text("missing.body", path=pathname[:200])),
            link(text("missing.back"), href="/", className="tt-button"),
        ],
        className="tt-notice",
    )

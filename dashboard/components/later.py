"""Parts of a page that may take longer: their place is drawn at once, they follow in a callback of their own."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.text import Text


def later(text: Text, name: str, **about: str) -> Any:
    """The place of the part `name` (see `dashboard.parts`), and what it is about."""
    return html.Div(
        [
            dcc.Store(id={"type": "later-spec", "name": name}, data=about),
            html.Div(
                html.P(text("later.loading"), className="tt-muted tt-loading-later"),
                id={"type": "later", "name": name},
                **aria(live="polite"),
            ),
        ]
    )

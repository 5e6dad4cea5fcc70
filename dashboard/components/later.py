"""Parts of a page that may take longer: their place is drawn at once, they follow in a callback of their own."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.text import Text


def later(text: Text, name: str, trace_id: str, entry_span_id: str) -> Any:
    """The place of the part `name` (see `around.LATER`), and what it is about."""
    return html.Div(
        [
            dcc.Store(id={"type": "later-spec", "name": name}, data={"trace": trace_id, "entry": entry_span_id}),
            html.Div(
                html.P(text("later.loading"), className="tt-muted tt-loading-later"),
                id={"type": "later", "name": name},
                **aria(live="polite"),
            ),
        ]
    )

"""Named views of a page, kept in the reader's browser: a view is an address, so a name is all it takes."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.still import SavedViews
from tailtrace.dashboard.text import Text

_WORDS = ("save", "name", "remove", "none")


def saved_views(text: Text) -> Any:
    """The place that assets/i_saved_views.js fills."""
    return html.Details(
        [
            html.Summary(text("saved.title"), className="tt-button is-small"),
            SavedViews({word: text(f"saved.{word}") for word in _WORDS}),
        ],
        className="tt-details",
        **aria(label=text("saved.title")),
    )

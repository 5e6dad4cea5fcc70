"""The place of the waterfall: the browser fetches the trace's columns and draws them (assets/waterfall_*.js)."""

from __future__ import annotations

from typing import Any, Final

from dash import dcc, html

from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.text import Text
from tailtrace.stages import NAMES, UNEXPLAINED

# What the script says, so that its words live in the catalogue too.
_WORDS: Final = (
    "loading",
    "failed",
    "search",
    "critical",
    "derived",
    "fold",
    "unfold",
    "fit",
    "help",
    "showing",
    "orphan",
    "error",
    "attributes",
    "resource",
    "events",
    "links",
    "raw",
    "start",
    "end",
    "duration",
    "received",
    "status",
    "span",
    "parent",
    "close",
    "group",
    "none",
    "keys",
    "offset",
    "self",
    "matches",
    "orphans",
    "skew",
    "skew_fix",
    "skew_hint",
    "clipped",
    "logs",
    "logs_shown",
)


def waterfall_panel(text: Text, trace_id: str, entry_span_id: str) -> Any:
    """An empty panel and what the script needs to fill it."""
    words = {word: text(f"waterfall.{word}") for word in _WORDS}
    stages = {name: text.stage(name) for name in (*NAMES, UNEXPLAINED)}
    return html.Section(
        [
            html.H2(text("waterfall.title"), className="tt-hidden"),
            dcc.Store(
                id="waterfall-spec", data={"trace": trace_id, "entry": entry_span_id, "words": words, "stages": stages}
            ),
            html.Div(id="waterfall", className="tt-waterfall"),
        ],
        className="tt-panel is-waterfall",
        **aria(label=text("waterfall.title")),
    )

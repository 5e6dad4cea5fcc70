"""Buttons that the browser sends to the API (assets/g_actions.js)."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.dashboard.components.attributes import data
from tailtrace.dashboard.permission import may_write


def action(words: str, path: str, *, body: str = "{}", method: str = "POST", **more: str) -> Any:
    """One request to the API, then the page again; nothing for a reader who may not. `more`: confirm, then, good."""
    if not may_write():
        return None
    return html.Button(words, className="tt-button is-small", **data(post=path, body=body, method=method, **more))

"""What the reader of a page may do: a page draws no button that the API would refuse."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from dash import html

from tailtrace.dashboard.security import COOKIE
from tailtrace.dashboard.text import Text
from tailtrace.ingest.tokens import Tokens

# A page is drawn in a context of its own, so this is no shared state.
_MAY_WRITE: Final[ContextVar[bool]] = ContextVar("may_write", default=True)


def use_permission(tokens: Tokens, headers: Mapping[str, str], cookies: Mapping[str, str]) -> None:
    """Read from a request what its sender may do. Without any token set, everybody may do everything."""
    _MAY_WRITE.set(
        not tokens.required()
        or tokens.header_allows(headers.get("authorization", ""), "admin")
        or tokens.session_allows(cookies.get(COOKIE, ""), "admin")
    )


def may_write() -> bool:
    """Whether the reader of this page may change rules, channels and alerts."""
    return _MAY_WRITE.get()


def read_only_note(text: Text) -> Any:
    """Why there are no buttons, where there are none."""
    return None if may_write() else html.P(text("permission.read"), className="tt-muted tt-read-only", role="note")

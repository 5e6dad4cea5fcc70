"""The pages, by path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.dashboard.address import Address
from tailtrace.dashboard.pages import missing, overview, request, requests
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

Draw = Callable[[Store, ServerSettings, Text, str, Address], Any]
Controls = Callable[[Store, Text, Address], Any]


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `ranged` pages have the time range in their header; `controls` stand above what `draw` gives."""

    key: str
    path: str
    draw: Draw
    ranged: bool
    controls: Controls | None = None


OVERVIEW: Final = Page("overview", "/", overview.draw, True)
REQUESTS: Final = Page("requests", "/requests", requests.draw, True, requests.controls)
REQUEST: Final = Page("request", "/requests/", request.draw, False)
MISSING: Final = Page("missing", "", missing.draw, False)
NAVIGATION: Final = (OVERVIEW, REQUESTS)


def page_for(pathname: str) -> Page:
    """The page of a path; unknown paths have a page that says so."""
    path = pathname.rstrip("/") or "/"
    if path.startswith(REQUEST.path):
        return REQUEST
    return next((page for page in NAVIGATION if page.path == path), MISSING)

"""The pages, by path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.dashboard.address import Address
from tailtrace.dashboard.pages import (
    alerts,
    channels,
    compare,
    diagnosis,
    gpus,
    health,
    missing,
    overview,
    regressions,
    replicas,
    request,
    requests,
    rules,
    service_map,
    settings,
    slos,
    whatif,
)
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
NAVIGATION: Final = (
    OVERVIEW,
    REQUESTS,
    Page("diagnosis", "/diagnosis", diagnosis.draw, True, diagnosis.controls),
    Page("compare", "/compare", compare.draw, True, compare.controls),
    Page("regressions", "/regressions", regressions.draw, True, regressions.controls),
    Page("whatif", "/what-if", whatif.draw, True, whatif.controls),
    Page("gpus", "/gpus", gpus.draw, True, gpus.controls),
    Page("replicas", "/replicas", replicas.draw, True, replicas.controls),
    Page("map", "/map", service_map.draw, True),
    Page("alerts", "/alerts", alerts.draw, False, alerts.controls),
    Page("rules", "/rules", rules.draw, False),
    Page("channels", "/channels", channels.draw, False),
    Page("slos", "/slos", slos.draw, False),
    Page("health", "/health", health.draw, False),
    Page("settings", "/settings", settings.draw, False),
)


def page_for(pathname: str) -> Page:
    """The page of a path; unknown paths have a page that says so."""
    path = pathname.rstrip("/") or "/"
    if path.startswith(REQUEST.path):
        return REQUEST
    return next((page for page in NAVIGATION if page.path == path), MISSING)

"""One function an answer. Each returns a frozen dataclass whose field names are the JSON of the API, CLI, MCP and
alerts.
"""

from tailtrace.analytics.queries.freshness import Freshness, freshness
from tailtrace.analytics.queries.json import to_json
from tailtrace.analytics.queries.overview import Overview, overview
from tailtrace.analytics.queries.request import RequestDetail, get_request
from tailtrace.analytics.queries.requests import RequestFilter, RequestList, list_requests
from tailtrace.analytics.queries.series import Series, series
from tailtrace.analytics.queries.services import Services, services
from tailtrace.analytics.queries.span import SpanDetail, get_span
from tailtrace.analytics.queries.sql import SqlAnswer, run_sql
from tailtrace.analytics.queries.waterfall import Waterfall, waterfall
from tailtrace.analytics.queries.window import Window, resolve_window

__all__ = [
    "Freshness",
    "Overview",
    "RequestDetail",
    "RequestFilter",
    "RequestList",
    "Series",
    "Services",
    "SpanDetail",
    "SqlAnswer",
    "Waterfall",
    "Window",
    "freshness",
    "get_request",
    "get_span",
    "list_requests",
    "overview",
    "resolve_window",
    "run_sql",
    "series",
    "services",
    "to_json",
    "waterfall",
]

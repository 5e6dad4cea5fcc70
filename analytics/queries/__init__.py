"""One function an answer. Each returns a frozen dataclass whose field names are the JSON of the API, CLI, MCP and
alerts.
"""

from tailtrace.analytics.queries.attribution import Attribution, attribution
from tailtrace.analytics.queries.batch_curve import BatchCurve, batch_curve
from tailtrace.analytics.queries.compare import Comparison, compare
from tailtrace.analytics.queries.freshness import Freshness, freshness
from tailtrace.analytics.queries.gpu_idle import GpuIdle, gpu_idle
from tailtrace.analytics.queries.json import to_json
from tailtrace.analytics.queries.overview import Overview, overview
from tailtrace.analytics.queries.replicas import Replicas, replicas
from tailtrace.analytics.queries.request import RequestDetail, get_request
from tailtrace.analytics.queries.request_filter import RequestFilter
from tailtrace.analytics.queries.requests import RequestList, list_requests
from tailtrace.analytics.queries.root_cause import RootCause, root_cause
from tailtrace.analytics.queries.selection import Selection, parse_filters, select
from tailtrace.analytics.queries.series import Series, series
from tailtrace.analytics.queries.services import Services, services
from tailtrace.analytics.queries.slow import SlowVersusRest, slow_versus_rest
from tailtrace.analytics.queries.span import SpanDetail, get_span
from tailtrace.analytics.queries.sql import SqlAnswer, run_sql
from tailtrace.analytics.queries.tokens import Tokens, tokens
from tailtrace.analytics.queries.verdicts import VerdictList, verdicts
from tailtrace.analytics.queries.waterfall import Waterfall, waterfall
from tailtrace.analytics.queries.whatif import Change, WhatIf, whatif
from tailtrace.analytics.queries.why import Why, why
from tailtrace.analytics.queries.window import Window, resolve_window

__all__ = [
    "Attribution",
    "BatchCurve",
    "Change",
    "Comparison",
    "Freshness",
    "GpuIdle",
    "Overview",
    "Replicas",
    "RequestDetail",
    "RequestFilter",
    "RequestList",
    "RootCause",
    "Selection",
    "Series",
    "Services",
    "SlowVersusRest",
    "SpanDetail",
    "SqlAnswer",
    "Tokens",
    "VerdictList",
    "Waterfall",
    "WhatIf",
    "Why",
    "Window",
    "attribution",
    "batch_curve",
    "compare",
    "freshness",
    "get_request",
    "get_span",
    "gpu_idle",
    "list_requests",
    "overview",
    "parse_filters",
    "replicas",
    "resolve_window",
    "root_cause",
    "run_sql",
    "select",
    "series",
    "services",
    "slow_versus_rest",
    "to_json",
    "tokens",
    "verdicts",
    "waterfall",
    "whatif",
    "why",
]

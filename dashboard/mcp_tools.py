"""The tools that an assistant may call: the API's answers, cut to what is needed to ask the next question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tailtrace.analytics.queries import (
    RequestFilter,
    list_requests,
    overview,
    resolve_window,
    whatif,
)
from tailtrace.analytics.queries.compare import compare
from tailtrace.analytics.queries.request_head import request_head
from tailtrace.analytics.queries.request_row import RequestRow
from tailtrace.analytics.queries.selection import Selection, parse_filters, select
from tailtrace.analytics.queries.verdicts import request_verdict, verdicts
from tailtrace.analytics.queries.whatif import Change
from tailtrace.analytics.queries.why import why
from tailtrace.analytics.queries.window import Window
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.store import Store

_FEW: Final = 20
_RANGE: Final = {
    "range": {"type": "string", "description": "how far back from the newest data: 15m, 6h, 7d; default 1h"},
    "since": {"type": "string", "description": "ISO 8601 or Unix nanoseconds"},
    "until": {"type": "string", "description": "ISO 8601 or Unix nanoseconds"},
}
_SERVICE: Final = {"service": {"type": "string", "description": "name of the service; default: the busiest"}}


@dataclass(frozen=True, slots=True)
class Tool:
    """`run` takes the store and the arguments, and gives what becomes JSON."""

    name: str
    description: str
    properties: Mapping[str, Any]
    required: Sequence[str]
    run: Callable[[Store, Mapping[str, Any]], Any]

    def declared(self) -> dict[str, Any]:
        """As tools/list has it. All tools only read."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": dict(self.properties),
                "required": list(self.required),
                "additionalProperties": False,
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        }


def _window(store: Store, given: Mapping[str, Any]) -> Window:
    window = resolve_window(
        store, since=_text(given, "since") or None, until=_text(given, "until") or None,
        span=_text(given, "range") or None,
    )  # fmt: skip
    if window is None:
        raise NotFound("nothing is stored yet")
    return window


def _service(store: Store, given: Mapping[str, Any], window: Window) -> str:
    if _text(given, "service"):
        return _text(given, "service")
    found = overview(store, window).services
    if not found:
        raise NotFound("there are no requests in this range")
    return found[0].service


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise Rejected(f"{name} is a string; got {type(value).__name__}")
    return value[:1000]


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Rejected(f"{name} is a number; got {type(value).__name__}")
    return float(value)


def _short(row: RequestRow) -> dict[str, Any]:
    top = sorted(row.stages, key=lambda one: -one.duration_ns)[:3]
    return {
        "trace_id": row.trace_id, "service": row.service, "route": row.route or row.name, "outcome": row.outcome,
        "start_unix_ns": row.start_unix_ns, "duration_ns": row.duration_ns, "ttft_ns": row.ttft_ns, "model": row.model,
        "output_tokens": row.output_tokens, "top_stages": [[one.stage, round(one.share, 3)] for one in top],
        "simulated": row.simulated,
    }  # fmt: skip


def search_requests(store: Store, given: Mapping[str, Any]) -> Any:
    window = _window(store, given)
    found = list_requests(
        store,
        RequestFilter(
            service=_text(given, "service"), model=_text(given, "model"), outcome=_text(given, "outcome"),
            text=_text(given, "text"), attributes=_text(given, "attributes"), order=_text(given, "order") or "slowest",
            min_duration_ns=round(_number(given, "min_duration_ms", 0) * 1e6) or None, since_ns=window.since_ns,
            until_ns=window.until_ns, limit=max(1, min(_FEW, int(_number(given, "limit", 10)))),
        ),
    )  # fmt: skip
    return {
        "requests": [_short(row) for row in found.requests],
        "shown": len(found.requests),
        "total": found.total,
        "then": "explain_request with a trace_id, or why_slow for the service as a whole",
    }


def explain_request(store: Store, given: Mapping[str, Any]) -> Any:
    head = request_head(store, _text(given, "trace_id"))
    own = head.requests[0]
    return {
        "request": _short(own),
        "stages": [
            {"stage": one.stage, "duration_ns": one.duration_ns, "share": round(one.share, 4), "derived": one.derived}
            for one in head.stage_table
        ],
        "conditions": head.conditions,
        "verdict": request_verdict(store, own) if head.stored else None,
        "then": "why_slow around its time tells whether others waited too",
    }


def why_slow(store: Store, given: Mapping[str, Any]) -> Any:
    window = _window(store, given)
    found = why(store, _service(store, given, window), window.since_ns, window.until_ns)
    return {
        "service": found.service, "state": found.state, "excess_ns": found.excess_ns,
        "relative": round(found.relative, 4), "slow_part": found.slow_part, "verdict": found.verdict,
        "steps": [
            {"step": one.step, "state": one.state, "share": round(one.share, 4), "before_ns": one.before_ns,
             "during_ns": one.during_ns, "causes": [cause.cause for cause in one.causes], "note": one.note}
            for one in found.steps
        ],
        "before": asdict(found.before), "during": asdict(found.during), "missing": found.missing,
        "then": "compare tells traffic from service; search_requests finds examples; whatif tries a remedy",
    }  # fmt: skip


def compare_windows(store: Store, given: Mapping[str, Any]) -> Any:
    window = _window(store, given)
    service = _service(store, given, window)
    back = window.until_ns - window.since_ns
    a = _window(store, {"since": given["a_since"], "until": given["a_until"]}) if given.get("a_since") else None
    a_since, a_until = (a.since_ns, a.until_ns) if a else (max(0, window.since_ns - back), window.since_ns)
    filters = parse_filters(_text(given, "filter").split())
    found = compare(
        store, Selection(service, a_since, a_until, filters),
        Selection(service, window.since_ns, window.until_ns, filters),
    )  # fmt: skip
    return {
        "a": asdict(found.a), "b": asdict(found.b), "conditions_that_differ": [one.name for one in found.conditions],
        "changes": [
            {"metric": one.metric, "q": one.q, "a_ns": one.a_ns, "b_ns": one.b_ns, "change_ns": one.change_ns,
             "traffic_ns": sum(term.change_ns for term in one.traffic), "within_ns": one.within_ns,
             "stages": [asdict(term) for term in one.stages[:5]], "hollow": one.hollow}
            for one in found.changes
        ],
        "then": "why_slow for the cause of a stage that grew",
    }  # fmt: skip


def what_if(store: Store, given: Mapping[str, Any]) -> Any:
    window = _window(store, given)
    factors = given.get("stages", {})
    if not isinstance(factors, Mapping):
        raise Rejected('stages is an object of stage and factor, like {"prefill": 0.5}')
    change = Change(
        {str(stage): _number(factors, stage, 1.0) for stage in factors},
        int(_number(given, "replicas", 0)), 0.0, _number(given, "rate", 1.0),
    )  # fmt: skip
    return whatif(store, select(window, _service(store, given, window)), change)


def list_regressions(store: Store, given: Mapping[str, Any]) -> Any:
    window = _window(store, {"range": "24h", **given})
    found = verdicts(store, window.since_ns, window.until_ns, service=_text(given, "service"), limit=_FEW)
    return {
        "slower_windows": found.verdicts, "shown": len(found.verdicts), "total": found.total,
        "then": "why_slow or compare with the window of one",
    }  # fmt: skip


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        "search_requests",
        "Requests of an AI inference stack, slowest first, each with the stages that took most of its time.",
        {
            **_SERVICE, **_RANGE, "model": {"type": "string"},
            "outcome": {"type": "string", "enum": ["ok", "error", "cancelled", "timeout", "rejected"]},
            "text": {"type": "string", "description": "part of a name, route or id"},
            "attributes": {"type": "string", "description": "span attributes: http.response.status_code>=500 a.b=c"},
            "order": {"type": "string", "description": "slowest, newest, ttft, tpot or the name of a stage"},
            "min_duration_ms": {"type": "number"}, "limit": {"type": "integer", "maximum": _FEW},
        },
        (), search_requests,
    ),
    Tool("explain_request", "One request: its time by stage, summing to all of it, and why it was slow.",
         {"trace_id": {"type": "string"}}, ("trace_id",), explain_request),
    Tool("why_slow", "Why a service is slow in a range against the time before: each step of the diagnosis ruled in or "
         "out with evidence.", {**_SERVICE, **_RANGE}, (), why_slow),
    Tool("compare", "From range A to range B (default: B the range, A the same length before): which stage changed the "
         "percentiles, and how much is only other traffic.",
         {**_SERVICE, **_RANGE, "a_since": {"type": "string"}, "a_until": {"type": "string"},
          "filter": {"type": "string", "description": "version=1.4 model=m"}}, (), compare_windows),
    Tool("whatif", "Percentiles if stages were faster, replicas added, or more came: the queue replayed.",
         {**_SERVICE, **_RANGE, "stages": {"type": "object", "additionalProperties": {"type": "number"}},
          "replicas": {"type": "integer"}, "rate": {"type": "number"}}, (), what_if),
    Tool("list_regressions", "Windows in which services were slower than before, newest first, with their causes.",
         {**_SERVICE, **_RANGE}, (), list_regressions),
)  # fmt: skip

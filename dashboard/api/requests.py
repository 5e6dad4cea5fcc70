"""Routes about requests: the list, one trace, its waterfall, one span."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from tailtrace.analytics.queries import RequestFilter, get_request, get_span, list_requests, to_json, waterfall
from tailtrace.analytics.queries.window import newest_ns, parse_span, parse_time
from tailtrace.dashboard.api.params import Tristate, tristate
from tailtrace.ingest.store import Store

Text = Annotated[str, Query(max_length=200)]
Time = Annotated[str | None, Query(max_length=40)]
Nanoseconds = Annotated[int | None, Query(ge=0, lt=1 << 63)]


def add_requests(router: APIRouter, store: Store) -> None:
    """GET /requests, /requests/{trace_id}, .../waterfall, .../spans/{span_id}."""

    @router.get("/requests")
    def requests(
        service: Text = "",
        model: Text = "",
        route: Text = "",
        outcome: Text = "",
        version: Text = "",
        kind: Literal["request", "startup", "job", "any"] = "request",
        is_root: Tristate = "true",
        min_duration_ns: Nanoseconds = None,
        max_duration_ns: Nanoseconds = None,
        text: Text = "",
        since: Time = None,
        until: Time = None,
        range: Time = None,
        order: Literal["newest", "slowest"] = "newest",
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: Annotated[str | None, Query(max_length=400)] = None,
    ) -> Response:
        first, last = _range(store, since, until, range)
        wanted = RequestFilter(
            service=service,
            model=model,
            route=route,
            outcome=outcome,
            version=version,
            kind="" if kind == "any" else kind,
            is_root=tristate(is_root),
            min_duration_ns=min_duration_ns,
            max_duration_ns=max_duration_ns,
            text=text,
            since_ns=first,
            until_ns=last,
            order=order,
            limit=limit,
            cursor=cursor,
        )
        return _json(list_requests(store, wanted))

    @router.get("/requests/{trace_id}")
    def request(trace_id: str, span_id: str | None = None) -> Response:
        return _json(get_request(store, trace_id, span_id=span_id))

    @router.get("/requests/{trace_id}/waterfall")
    def columns(trace_id: str, span_id: str | None = None) -> Response:
        return _json(waterfall(store, trace_id, span_id=span_id))

    @router.get("/requests/{trace_id}/spans/{span_id}")
    def span(trace_id: str, span_id: str) -> Response:
        return _json(get_span(store, trace_id, span_id))


def _range(store: Store, since: str | None, until: str | None, span: str | None) -> tuple[int | None, int | None]:
    """Bounds of a list: as given, or `span` back from `until` or the newest data; open where nothing is said."""
    last = parse_time(until) if until else None
    if since:
        return parse_time(since), last
    if not span:
        return None, last
    end = last if last is not None else newest_ns(store)
    return (None, last) if end is None else (max(0, end - parse_span(span)), last)


def _json(answer: object) -> Response:
    return Response(to_json(answer), media_type="application/json")

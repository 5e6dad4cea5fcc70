"""Routes about requests: the list, one trace, its waterfall, one span."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, cast

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from tailtrace.analytics.queries import RequestFilter, get_request, get_span, list_requests, to_json, waterfall
from tailtrace.analytics.queries.chrome_trace import chrome_trace
from tailtrace.analytics.queries.export import MAX_ROWS, csv_lines, json_lines
from tailtrace.analytics.queries.facets import facets
from tailtrace.analytics.queries.heatmap import heatmap
from tailtrace.analytics.queries.neighbourhood import neighbourhood
from tailtrace.analytics.queries.trace_logs import trace_logs
from tailtrace.analytics.queries.window import newest_ns, parse_span, parse_time, resolve_window
from tailtrace.dashboard.api.params import Tristate, tristate
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store

Text = Annotated[str, Query(max_length=200)]
Time = Annotated[str | None, Query(max_length=40)]
Nanoseconds = Annotated[int | None, Query(ge=0, lt=1 << 63)]


def store_of(request: Request) -> Store:
    """The store that the application was made over."""
    return cast(Store, request.app.state.store)


def request_filter(
    store: Annotated[Store, Depends(store_of)],
    service: Text = "",
    model: Text = "",
    route: Text = "",
    outcome: Text = "",
    version: Text = "",
    replica: Text = "",
    tenant: Text = "",
    kind: Literal["request", "startup", "job", "any"] = "request",
    is_root: Tristate = "true",
    min_duration_ns: Nanoseconds = None,
    max_duration_ns: Nanoseconds = None,
    text: Text = "",
    attributes: Annotated[str, Query(max_length=1000)] = "",
    since: Time = None,
    until: Time = None,
    range: Time = None,
    order: Text = "newest",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    cursor: Annotated[str | None, Query(max_length=400)] = None,
) -> RequestFilter:
    """The filter that query parameters name. `attributes`: `http.response.status_code>=500 "user tier"~gold`."""
    first, last = _range(store, since, until, range)
    return RequestFilter(
        service=service,
        model=model,
        route=route,
        outcome=outcome,
        version=version,
        replica=replica,
        tenant=tenant,
        kind="" if kind == "any" else kind,
        is_root=tristate(is_root),
        min_duration_ns=min_duration_ns,
        max_duration_ns=max_duration_ns,
        text=text,
        attributes=attributes,
        since_ns=first,
        until_ns=last,
        order=order,
        limit=limit,
        cursor=cursor,
    )


Wanted = Annotated[RequestFilter, Depends(request_filter)]


def add_requests(router: APIRouter, store: Store) -> None:
    """GET /requests, /requests/export, /heatmap, /facets, /requests/{trace_id}, .../waterfall, .../spans/{span_id}."""

    @router.get("/requests")
    def requests(wanted: Wanted) -> Response:
        return _json(list_requests(store, wanted))

    @router.get("/requests/export")
    def export(wanted: Wanted, format: Literal["csv", "json"] = "csv") -> Response:
        """At most 20,000 rows; the header X-Tailtrace-Total says how many match."""
        total = list_requests(store, replace(wanted, limit=1)).total
        headers = {
            "X-Tailtrace-Total": str(total),
            "X-Tailtrace-Shown": str(min(total, MAX_ROWS)),
            "Content-Disposition": f'attachment; filename="requests.{"csv" if format == "csv" else "jsonl"}"',
        }
        if format == "csv":
            return StreamingResponse(csv_lines(store, wanted), headers=headers, media_type="text/csv; charset=utf-8")
        return StreamingResponse(json_lines(store, wanted), headers=headers, media_type="application/x-ndjson")

    @router.get("/facets")
    def values(wanted: Wanted) -> Response:
        return _json(facets(store, wanted))

    @router.get("/heatmap")
    def cells(wanted: Wanted, since: Time = None, until: Time = None, range: Time = None) -> Response:
        window = resolve_window(store, since=since, until=until, span=range)
        if window is None:
            raise NotFound("nothing is stored yet")
        return _json(heatmap(store, window, wanted))

    @router.get("/requests/{trace_id}")
    def request(trace_id: str, span_id: str | None = None) -> Response:
        return _json(get_request(store, trace_id, span_id=span_id))

    @router.get("/requests/{trace_id}/waterfall")
    def columns(trace_id: str, span_id: str | None = None) -> Response:
        return _json(waterfall(store, trace_id, span_id=span_id))

    @router.get("/requests/{trace_id}/chrome")
    def chrome(trace_id: str) -> Response:
        """For Perfetto and chrome://tracing."""
        body = to_json(chrome_trace(waterfall(store, trace_id)))
        headers = {"Content-Disposition": f'attachment; filename="{trace_id[:32].lower()}.json"'}
        return Response(body, headers=headers, media_type="application/json")

    @router.get("/requests/{trace_id}/neighbourhood")
    def around(trace_id: str, span_id: str = "") -> Response:
        return _json(neighbourhood(store, trace_id, span_id=span_id))

    @router.get("/requests/{trace_id}/logs")
    def logs(trace_id: str, span_id: str | None = None) -> Response:
        return _json(trace_logs(store, trace_id, span_id=span_id))

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

"""Routes about services as a whole: which there are, how they do, how complete the picture is."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from tailtrace.analytics.queries import freshness, overview, resolve_window, series, services, to_json
from tailtrace.analytics.queries.movers import movers
from tailtrace.analytics.queries.service_map import service_map
from tailtrace.analytics.queries.window import parse_span
from tailtrace.dashboard.api.params import Tristate, tristate
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store

Text = Annotated[str | None, Query(max_length=200)]


def add_services(router: APIRouter, store: Store) -> None:
    """GET /services, /overview, /movers, /series, /service-map, /freshness. A range is `since` and `until`, or `range`
    back from the newest data.
    """

    @router.get("/services")
    def all_services(since: Text = None, until: Text = None, range: Text = None) -> Response:
        window = resolve_window(store, since=since, until=until, span=range, default_span="30d")
        return _json(services(store, window))

    @router.get("/overview")
    def figures(
        since: Text = None, until: Text = None, range: Text = None, service: str = "", is_root: Tristate = "true"
    ) -> Response:
        window = resolve_window(store, since=since, until=until, span=range)
        return _json(overview(store, window, is_root=tristate(is_root), service=service))

    @router.get("/movers")
    def moved(
        since: Text = None, until: Text = None, range: Text = None, back: Text = None, is_root: Tristate = "true"
    ) -> Response:
        window = resolve_window(store, since=since, until=until, span=range)
        if window is None:
            raise NotFound("nothing is stored yet")
        return _json(movers(store, window, back_ns=parse_span(back or "1d"), is_root=tristate(is_root)))

    @router.get("/series")
    def over_time(
        service: str,
        since: Text = None,
        until: Text = None,
        range: Text = None,
        metric: Literal["duration", "ttft", "tpot"] = "duration",
        is_root: Tristate = "true",
    ) -> Response:
        window = resolve_window(store, since=since, until=until, span=range)
        if window is None:
            raise NotFound("nothing is stored yet")
        return _json(series(store, window, service, metric=metric, is_root=tristate(is_root)))

    @router.get("/service-map")
    def calls(since: Text = None, until: Text = None, range: Text = None) -> Response:
        window = resolve_window(store, since=since, until=until, span=range)
        if window is None:
            raise NotFound("nothing is stored yet")
        return _json(service_map(store, window))

    @router.get("/freshness")
    def completeness() -> Response:
        return _json(freshness(store))


def _json(answer: object) -> Response:
    return Response(to_json(answer), media_type="application/json")

"""Routes about causes: the kept verdicts, why a service is slow now, and what its GPUs wait for."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from tailtrace.analytics.queries import to_json
from tailtrace.analytics.queries.goals import goals_of
from tailtrace.analytics.queries.gpu_idle import gpu_idle
from tailtrace.analytics.queries.verdicts import verdicts
from tailtrace.analytics.queries.why import why
from tailtrace.analytics.queries.window import newest_ns, parse_span, parse_time
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

Text = Annotated[str, Query(max_length=200)]
Time = Annotated[str | None, Query(max_length=40)]


def add_verdicts(router: APIRouter, store: Store, settings: ServerSettings) -> None:
    """GET /verdicts, /why, /gpu-idle. A range is `since` and `until`, or `range` back from the newest data."""
    goals = goals_of(settings.goals)

    @router.get("/verdicts")
    def kept(
        service: Text = "",
        since: Time = None,
        until: Time = None,
        range: Time = None,
        everything: bool = False,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> Response:
        first, last = bounds(store, since, until, range or "24h")
        return _json(verdicts(store, first, last, service=service, everything=everything, limit=limit))

    @router.get("/why")
    def reasons(
        service: Text,
        since: Time = None,
        until: Time = None,
        range: Time = None,
        reference: Time = None,
        goal: Literal["online", "offline"] | None = None,
    ) -> Response:
        first, last = bounds(store, since, until, range or "15m")
        length = parse_span(reference) if reference else None
        return _json(why(store, service, first, last, reference_ns=length, goal=goal or goals.get(service)))

    @router.get("/gpu-idle")
    def idle(service: Text, since: Time = None, until: Time = None, range: Time = None) -> Response:
        first, last = bounds(store, since, until, range or "15m")
        return _json(gpu_idle(store, service, first, last))


def bounds(store: Store, since: str | None, until: str | None, span: str) -> tuple[int, int]:
    """The instants of a range, exact to the nanosecond. Raises NotFound where nothing is stored, Rejected for an
    empty range.
    """
    newest = newest_ns(store)
    if newest is None:
        raise NotFound("nothing is stored yet")
    last = parse_time(until) if until else newest + 1
    first = parse_time(since) if since else max(0, last - parse_span(span))
    if first >= last:
        raise Rejected(f"the range is empty: since {first} is not before until {last}")
    return first, last


def _json(answer: object) -> Response:
    return Response(to_json(answer), media_type="application/json")

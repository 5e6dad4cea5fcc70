"""Routes of changes, markers and alerts. Whoever writes needs an admin token, where tokens are asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from tailtrace.analytics.alerting.episodes import Episode
from tailtrace.analytics.jobs import episode_rows, markers
from tailtrace.analytics.queries.alerts import get_alert, list_alerts
from tailtrace.analytics.queries.changes import get_change, list_changes
from tailtrace.analytics.queries.json import to_json
from tailtrace.analytics.queries.window import parse_span, parse_time
from tailtrace.dashboard.api.params import Text, Time
from tailtrace.dashboard.api.rules import add_rules
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.ingest.tokens import Tokens

Limit = Annotated[int, Query(ge=1, le=1000)]
_COOKIE: Final = "tailtrace_session"


class MarkerIn(BaseModel):
    """A deploy or change that telemetry cannot show. `time`: ISO 8601 or Unix ns; now unless given."""

    text: str = Field(min_length=1, max_length=500)
    service: str = Field("", max_length=200)
    kind: str = Field("deploy", max_length=50)
    was: str = Field("", max_length=200)
    became: str = Field("", max_length=200)
    time: str = Field("", max_length=40)


class Mute(BaseModel):
    """Until when: a time, or a span from now like 2h."""

    until: str = Field(min_length=1, max_length=40)


def add_alerts(router: APIRouter, store: Store, settings: ServerSettings) -> None:
    """These, and those of rules and channels."""
    tokens = Tokens(settings)

    def writer(request: Request) -> None:
        cookie = request.cookies.get(_COOKIE, "")
        header = request.headers.get("authorization", "")
        if tokens.required() and not (tokens.header_allows(header, "admin") or tokens.session_allows(cookie, "admin")):
            raise HTTPException(403, "an admin token is needed to change alerts")

    _add_changes(router, store, [Depends(writer)])
    _add_episodes(router, store, [Depends(writer)])
    add_rules(router, store, settings, [Depends(writer)])


def _add_changes(router: APIRouter, store: Store, writer: list[Any]) -> None:
    @router.get("/changes")
    def changes(
        service: Text = "", state: Text = "", since: Time = None, until: Time = None, limit: Limit = 200
    ) -> Response:
        first, last = parse_time(since) if since else 0, parse_time(until) if until else 1 << 62
        return _json(list_changes(store, service=service, state=state, since_ns=first, until_ns=last, limit=limit))

    @router.get("/changes/{identity}")
    def change(identity: str) -> Response:
        return _json(get_change(store, identity))

    @router.get("/markers")
    def known(since: Time = None, limit: Limit = 200) -> Response:
        found = markers.load(store, parse_time(since) // 10**9 if since else 0, limit)
        return _json({"markers": found, "total": len(found), "next": None})

    @router.post("/markers", dependencies=writer, status_code=201)
    def mark(given: MarkerIn) -> Response:
        at = parse_time(given.time) // 10**6 if given.time else time.time_ns() // 10**6
        identity = markers.marker_id(given.service, given.kind, str(at), given.text)
        made = markers.Marker(
            identity, at, given.service, given.kind, given.was, given.became or given.text, given.text, "api"
        )
        markers.save(store, [made])
        return _json(made, 201)


def _add_episodes(router: APIRouter, store: Store, writer: list[Any]) -> None:
    @router.get("/alerts")
    def alerts(state: Text = "", limit: Limit = 200) -> Response:
        return _json(list_alerts(store, state=state, limit=limit))

    @router.get("/alerts/{identity}")
    def alert(identity: str) -> Response:
        return _json(get_alert(store, identity))

    @router.post("/alerts/{identity}/acknowledge", dependencies=writer)
    def acknowledge(identity: str) -> Response:
        episode = _episode(store, identity)
        if episode.state == "open":
            episode_rows.save(store, [replace(episode, state="acknowledged", revision=episode.revision + 1)])
        return _json(get_alert(store, identity))

    @router.post("/alerts/{identity}/mute", dependencies=writer)
    def mute(identity: str, given: Mute) -> Response:
        return _json(_muted(store, identity, _until_ms(given.until)))

    @router.post("/alerts/{identity}/unmute", dependencies=writer)
    def unmute(identity: str) -> Response:
        return _json(_muted(store, identity, None))


def _episode(store: Store, identity: str) -> Episode:
    found = episode_rows.one(store, identity)
    if found is None:
        raise NotFound(f"there is no alert {identity[:40]!r}")
    return found


def _muted(store: Store, identity: str, until_ms: int | None) -> Any:
    episode = _episode(store, identity)
    episode_rows.save(store, [replace(episode, muted_ms=until_ms, revision=episode.revision + 1)])
    return get_alert(store, identity)


def _until_ms(text: str) -> int:
    try:
        until = time.time_ns() + parse_span(text)
    except Rejected:
        until = parse_time(text)
    return until // 10**6


def _json(answer: object, status: int = 200) -> Response:
    return Response(to_json(answer), status, media_type="application/json")

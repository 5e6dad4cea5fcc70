"""Routes of changes, markers, alerts, rules, channels and objectives. Whoever writes needs an admin token, where tokens
are asked for.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, HTTPException, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from tailtrace.analytics.alerting import book
from tailtrace.analytics.alerting.channels import send
from tailtrace.analytics.alerting.episodes import Episode
from tailtrace.analytics.alerting.rules import parse_channel, parse_rule
from tailtrace.analytics.jobs import episode_rows, markers
from tailtrace.analytics.jobs.alerts import where_of
from tailtrace.analytics.queries.alerts import get_alert, list_alerts, objectives, replay
from tailtrace.analytics.queries.changes import get_change, list_changes
from tailtrace.analytics.queries.json import to_json
from tailtrace.analytics.queries.window import newest_ns, parse_span, parse_time
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.ingest.tokens import Tokens

Text = Annotated[str, Query(max_length=200)]
Time = Annotated[str | None, Query(max_length=40)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Object = Annotated[dict[str, Any], Body()]
_COOKIE: Final = "tailtrace_session"
_DAY_NS: Final = 86_400_000_000_000


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
    """All of them; the book of rules is read for each request, so a change holds at once."""
    tokens = Tokens(settings)

    def writer(request: Request) -> None:
        cookie = request.cookies.get(_COOKIE, "")
        header = request.headers.get("authorization", "")
        if tokens.required() and not (tokens.header_allows(header, "admin") or tokens.session_allows(cookie, "admin")):
            raise HTTPException(403, "an admin token is needed to change alerts")

    _add_changes(router, store, [Depends(writer)])
    _add_episodes(router, store, [Depends(writer)])
    _add_book(router, store, settings, [Depends(writer)])


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


def _add_book(router: APIRouter, store: Store, settings: ServerSettings, writer: list[Any]) -> None:
    def current() -> book.Book:
        return book.load(store, settings.alerts_file)

    @router.get("/rules")
    def rules() -> Response:
        kept = current()
        found = [
            {**rule.model_dump(), "fixed": ("rule", name) in kept.fixed} for name, rule in sorted(kept.rules.items())
        ]
        return _json({"rules": found, "total": len(found), "next": None})

    @router.put("/rules/{name}", dependencies=writer)
    def put_rule(name: str, given: Object) -> Response:
        rule = parse_rule({**given, "name": name})
        book.put(store, current(), "rule", rule)
        return _json(rule.model_dump())

    @router.delete("/rules/{name}", dependencies=writer, status_code=204)
    def delete_rule(name: str) -> Response:
        book.delete(store, current(), "rule", name)
        return Response(status_code=204)

    @router.post("/rules/test")
    def test_rule(given: Object, since: Time = None, until: Time = None) -> Response:
        named = current().rules.get(str(given.get("name", ""))) if set(given) == {"name"} else None
        if named is None and set(given) == {"name"}:
            raise NotFound(f"there is no rule {str(given['name'])[:100]!r}")
        rule = named or parse_rule(given)
        end = parse_time(until) if until else (newest_ns(store) or time.time_ns())
        start = parse_time(since) if since else end - _DAY_NS
        fired = replay(store, rule, start // 10**9, end // 10**9, where_of(settings))
        return _json({"rule": rule.name, "since_unix_ns": str(start), "until_unix_ns": str(end), "fired": fired})

    @router.get("/channels")
    def channels() -> Response:
        found = [channel.shown() for _, channel in sorted(current().channels.items())]
        return _json({"channels": found, "total": len(found), "next": None})

    @router.put("/channels/{name}", dependencies=writer)
    def put_channel(name: str, given: Object) -> Response:
        channel = parse_channel({**given, "name": name})
        book.put(store, current(), "channel", channel)
        return _json(channel.shown())

    @router.delete("/channels/{name}", dependencies=writer, status_code=204)
    def delete_channel(name: str) -> Response:
        book.delete(store, current(), "channel", name)
        return Response(status_code=204)

    @router.post("/channels/{name}/test", dependencies=writer)
    def test_channel(name: str) -> Response:
        channel = current().channels.get(name)
        if channel is None:
            raise NotFound(f"there is no channel {name[:100]!r}")
        where = where_of(settings)
        payload = {
            "event": "test", "episode": "", "rule": "", "summary": "this channel works", "body": {},
            "links": {"alerts": f"{where.base}/alerts"},
        }  # fmt: skip
        sent = send(channel, f"test-{time.time_ns()}", payload)
        return _json({"delivered": sent.result == "ok", "error": sent.error or None})

    @router.get("/slos")
    def slos() -> Response:
        watched = [rule for rule in current().rules.values() if rule.kind == "slo"]
        end = newest_ns(store)
        found = objectives(store, watched, end // 10**9) if watched and end else []
        return _json({"slos": found, "total": len(found), "next": None})


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

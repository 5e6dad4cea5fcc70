"""Routes of rules, channels and objectives: what is watched, who is told, and how it stands."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body
from fastapi.responses import Response

from tailtrace.analytics.alerting import book
from tailtrace.analytics.alerting.channels import send
from tailtrace.analytics.alerting.rules import parse_channel, parse_rule, redefined
from tailtrace.analytics.jobs.alerts import where_of
from tailtrace.analytics.queries.alerts import replay
from tailtrace.analytics.queries.goals import goals_of
from tailtrace.analytics.queries.json import to_json
from tailtrace.analytics.queries.objectives import objective, objectives
from tailtrace.analytics.queries.rule_states import rule_states
from tailtrace.analytics.queries.telemetry import telemetry
from tailtrace.analytics.queries.window import newest_ns, parse_time
from tailtrace.dashboard.api.params import Text, Time
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

Object = Annotated[dict[str, Any], Body()]
_DAY_NS: Final = 86_400_000_000_000


def add_rules(router: APIRouter, store: Store, settings: ServerSettings, writer: list[Any]) -> None:
    """The book is read for each request, so a change holds at once. `writer`: what allows to change it."""
    told = goals_of(settings.goals)

    def current() -> book.Book:
        return book.load(store, settings.alerts_file)

    def named(name: str) -> Any:
        rule = current().rules.get(name)
        if rule is None:
            raise NotFound(f"there is no rule {name[:100]!r}")
        return rule

    def shown(kept: book.Book, rule: Any) -> dict[str, Any]:
        return {**rule.model_dump(), "fixed": ("rule", rule.name) in kept.fixed}

    def stored(name: str, given: dict[str, Any], *, fresh: bool, status: int) -> Response:
        rule, kept = parse_rule({**given, "name": name}), current()
        if fresh and name in kept.rules:
            raise Rejected(f"there is a rule {name!r} already: PUT changes it")
        book.put(store, kept, "rule", rule)
        return _json(shown(kept, rule), status)

    @router.get("/rules")
    def rules(kind: Text = "") -> Response:
        kept = current()
        found = [shown(kept, rule) for _, rule in sorted(kept.rules.items()) if kind in ("", rule.kind)]
        return _json({"rules": found, "total": len(found), "next": None})

    @router.post("/rules", dependencies=writer)
    def make_rule(given: Object) -> Response:
        return stored(str(given.get("name", "")), given, fresh=True, status=201)

    @router.post("/rules/check")
    def check_rule(given: Object) -> Response:
        return _json(parse_rule(given).model_dump())

    @router.post("/rules/test")
    def test_rule(given: Object, since: Time = None, until: Time = None) -> Response:
        rule = named(str(given["name"])) if set(given) == {"name"} else parse_rule(given)
        end = parse_time(until) if until else (newest_ns(store) or time.time_ns())
        start = parse_time(since) if since else end - _DAY_NS
        fired = replay(store, rule, start // 10**9, end // 10**9, where_of(settings), told)
        return _json({"rule": rule.name, "since_unix_ns": str(start), "until_unix_ns": str(end), "fired": fired})

    @router.get("/rules/{name}")
    def rule_of(name: str) -> Response:
        return _json(shown(current(), named(name)))

    @router.get("/rules/{name}/states")
    def states(name: str) -> Response:
        found = rule_states(store, named(name), time.time_ns() // 1_000_000, told)
        return _json({"states": found, "total": len(found), "next": None})

    @router.put("/rules/{name}", dependencies=writer)
    def put_rule(name: str, given: Object) -> Response:
        return stored(name, given, fresh=False, status=200)

    @router.delete("/rules/{name}", dependencies=writer, status_code=204)
    def delete_rule(name: str) -> Response:
        book.delete(store, current(), "rule", name)
        return Response(status_code=204)

    @router.get("/slos")
    def slos() -> Response:
        watched = [rule for _, rule in sorted(current().rules.items()) if rule.kind == "slo"]
        found = objectives(store, watched, time.time_ns() // 1_000_000, told)
        return _json({"slos": found, "total": len(found), "next": None})

    @router.get("/slos/{name}")
    def slo(name: str, service: Text) -> Response:
        rule = named(name)
        if rule.kind != "slo":
            raise Rejected(f"rule {name!r} is of kind {rule.kind}, not slo")
        return _json(objective(store, rule, service, time.time_ns() // 1_000_000))

    @router.get("/telemetry")
    def arriving() -> Response:
        return _json(telemetry(store, time.time_ns() // 1_000_000))

    _add_channels(router, store, settings, writer)


def _add_channels(router: APIRouter, store: Store, settings: ServerSettings, writer: list[Any]) -> None:
    def current() -> book.Book:
        return book.load(store, settings.alerts_file)

    def stored(name: str, given: dict[str, Any], *, fresh: bool, status: int) -> Response:
        kept = current()
        old = kept.channels.get(name)
        if fresh and old is not None:
            raise Rejected(f"there is a channel {name!r} already: PUT changes it")
        channel = parse_channel({**redefined(given, old), "name": name})
        book.put(store, kept, "channel", channel)
        return _json({**channel.shown(), "fixed": False}, status)

    @router.get("/channels")
    def channels() -> Response:
        kept = current()
        found = [
            {**channel.shown(), "fixed": ("channel", name) in kept.fixed}
            for name, channel in sorted(kept.channels.items())
        ]
        return _json({"channels": found, "total": len(found), "next": None})

    @router.post("/channels", dependencies=writer)
    def make_channel(given: Object) -> Response:
        return stored(str(given.get("name", "")), given, fresh=True, status=201)

    @router.put("/channels/{name}", dependencies=writer)
    def put_channel(name: str, given: Object) -> Response:
        return stored(name, given, fresh=False, status=200)

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


def _json(answer: object, status: int = 200) -> Response:
    return Response(to_json(answer), status, media_type="application/json")

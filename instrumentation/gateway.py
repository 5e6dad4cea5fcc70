"""`wrap_gateway(app)`: one request span for each call of an ASGI app, with its body, its answer and its tokens.

Pure ASGI and outermost, so it sees what the client sees. Per chunk of a stream it adds a clock read and two list writes
and returns the server's own awaitable. Websockets pass as one span; lifespan flushes at shutdown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.answer import Answer
from tailtrace.instrumentation.context import (
    Entered,
    in_c,
    otel_scope,
    parse_traceparent,
    traceparent_of,
    tracestate_of,
)
from tailtrace.instrumentation.dependencies import time_named_parts
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.otlp import SERVER
from tailtrace.instrumentation.outcome import of_exception
from tailtrace.instrumentation.record import Record
from tailtrace.instrumentation.transport import Every

log = logging.getLogger("tailtrace")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_SEEN: Final = "tailtrace.request"
_MAX_PATH: Final = 200
_MAX_DIGITS: Final = 17
_may_log = Every(60.0, time.monotonic)


def wrap_gateway(app: Any, *, stages: Mapping[str, Any] | None = None, sniff: bool = True) -> Any:
    """Wrap any ASGI app (FastAPI, Starlette, an engine's own server); use what is returned in its place.

    `stages` names callables, dependencies or middleware classes by stage: `{"auth": verify_key}`. Dependencies and
    middleware whose names say auth, key, jwt, token, limit or quota are found without it; `sniff=False` leaves them be.
    Attributes and methods of `app` stay reachable; wrapping twice changes nothing; before `instrument()` it passes.
    """
    if isinstance(app, Gateway):
        log.warning("tailtrace: wrap_gateway() was given an app that is wrapped already")
        return app
    return Gateway(app, dict(stages or {}), sniff)


class Gateway:
    """The wrapped app."""

    def __init__(self, app: Any, stages: dict[str, Any], sniff: bool) -> None:
        self._app = app
        self._stages = stages
        self._sniff = sniff
        self._prepared = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_app"], name)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        active = runtime.active
        if active is None:
            return await self._app(scope, receive, send)  # type: ignore[no-any-return]
        if not self._prepared:
            self._prepare()
        kind = scope["type"]
        if kind == "lifespan":
            return await self._app(scope, receive, _flushing(send))  # type: ignore[no-any-return]
        if kind not in {"http", "websocket"} or _SEEN in scope:
            return await self._app(scope, receive, send)  # type: ignore[no-any-return]
        try:
            record, inner, has_body = begin(scope, active.sample, active.region_header)
            answer = Answer(record, send, (scope.get("server"), scope.get("client")))
            entered = Entered(record)
        except Exception:
            if _may_log():
                log.exception("tailtrace: a request could not be recorded")
            return await self._app(scope, receive, send)  # type: ignore[no-any-return]
        failed: type[BaseException] | None = None
        try:
            if kind == "http":
                # Without a body, and where the server shows that the client has left, there is nothing to see here.
                if has_body or not answer.sees_client:
                    receive = _Body(record, receive, answer).receive
                send = answer.send
                if active.content is not None and has_body and record.sampled:
                    gathered = record.content = active.content.gather()
                    receive, send = gathered.receiving(receive), gathered.sending(send)
                await self._app(inner, receive, send)
            else:
                await self._app(inner, receive, send)
        except BaseException as error:
            failed = type(error)
            raise
        finally:
            try:
                entered.leave()
                name_after_route(record, inner)
                answer.finish(failed)
            except Exception:
                record.finish(of_exception(failed))
                if _may_log():
                    log.exception("tailtrace: a request's end could not be recorded")

    def _prepare(self) -> None:
        """Once, at the first call: by then all routes and middleware are there."""
        self._prepared = True
        try:
            time_named_parts(self._app, self._stages, self._sniff)
        except Exception:
            log.exception("tailtrace: dependencies and middleware are not timed")
        active = runtime.active
        if active is not None and active.settings.watch_loop:
            from tailtrace.instrumentation.loop_probe import watch_loop

            watch_loop()


Begun = tuple[Record, Message, bool]


def begin(scope: Message, sample: int, region_header: bytes = b"") -> Begun:
    """A record for this call, the scope the app gets (its `traceparent` names the record's span), and whether the
    headers speak of a body."""
    if in_c:
        begun: Begun | None = native.begin(scope, sample, region_header)
        if begun is not None:
            return begun
    return plain_begin(scope, sample, region_header)


def plain_begin(scope: Message, sample: int, region_header: bytes = b"") -> Begun:
    """The same in Python, and for scopes of every kind."""
    # Where the server says when the message began, the time until its headers were here is the request's too.
    now_ns = clock.now_ns()
    start_ns = scope.get("tailtrace.begin_ns", now_ns)
    traceparent = tracestate = b""
    size = request_id = region = None
    in_pieces = False
    headers: list[tuple[bytes, bytes]] = []
    for pair in scope["headers"]:
        name = pair[0]
        if name == b"traceparent":
            traceparent = pair[1]
        elif name == b"tracestate":
            tracestate = pair[1]
        else:
            headers.append(pair)
            if name == b"content-length":
                size = pair[1]
            elif name == b"x-request-id":
                request_id = pair[1]
            elif name == b"transfer-encoding":
                in_pieces = True
            elif region_header and name == region_header:
                region = pair[1]
    parent = parse_traceparent(traceparent, tracestate.decode("latin-1")) if traceparent else None
    around = otel_scope()
    if around is not None and (parent is None or around.trace_id == parent.trace_id):
        # Another library's server span is around this one: it is the nearer parent.
        parent = around
    record = Record(scope.get("method", "WEBSOCKET"), SERVER, parent, sample, start_ns)
    if start_ns != now_ns:
        record.mark("net_in", start_ns, now_ns)
    if size is not None and size.isdigit() and len(size) <= _MAX_DIGITS:
        record.attributes["http.request.body.size"] = int(size)
    if request_id is not None:
        record.set("request_id", request_id.decode("latin-1"))
    if region is not None:
        record.set("client.region", region.decode("latin-1"))
    headers.append((b"traceparent", traceparent_of(record).encode()))
    if record.trace_state or record.weight > 1:
        headers.append((b"tracestate", tracestate_of(record).encode("latin-1", "replace")))
    return record, {**scope, "headers": headers, _SEEN: record}, in_pieces or (size is not None and size != b"0")


def name_after_route(record: Record, scope: Mapping[str, Any]) -> None:
    """`POST /v1/chat/completions`: the route's pattern, never the path with its ids, unless there is no route."""
    if native is None or not native.name_after_route(record, scope):
        plain_name_after_route(record, scope)


def plain_name_after_route(record: Record, scope: Mapping[str, Any]) -> None:
    """The same in Python, and for scopes of every kind."""
    route = getattr(scope.get("route"), "path", None)
    method = record.name
    if isinstance(route, str):
        record.attributes["tailtrace.route"] = route[:_MAX_PATH]
        record.name = f"{method} {route[:_MAX_PATH]}"
    elif "route" not in scope and "endpoint" not in scope and "app" not in scope:
        # A bare ASGI app has no router: the path is all there is to tell its calls apart.
        record.attributes["tailtrace.route"] = scope.get("path", "")[:_MAX_PATH]


class _Body:
    """Times the arrival of the request's body, and sees the client leave."""

    __slots__ = ("_answer", "_done", "_receive", "_record", "_size", "_start_ns")

    def __init__(self, record: Record, receive: Receive, answer: Answer) -> None:
        self._record = record
        self._receive = receive
        self._answer = answer
        self._start_ns = 0
        self._size = 0
        self._done = False

    async def receive(self) -> Message:
        if self._done:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._answer.client_left()
            return message
        self._start_ns = self._start_ns or clock.now_ns()
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._done = True
            self._answer.client_left()
            return message
        self._size += len(message.get("body", b""))
        if not message.get("more_body", False):
            self._done = True
            if self._size:
                self._record.mark("net_in", self._start_ns, clock.now_ns())
                self._record.attributes["http.request.body.size"] = self._size
        return message


def _flushing(send: Send) -> Send:
    """A server that ends by a signal runs no exit handlers: the app's own shutdown is the last sure moment."""

    async def flushing(message: Message) -> None:
        if message["type"] in {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}:
            active = runtime.active
            if active is not None:
                import asyncio

                try:
                    await asyncio.to_thread(active.exporter.flush, active.settings.shutdown_s)
                except Exception:
                    log.debug("tailtrace: not flushed at shutdown", exc_info=True)
        await send(message)

    return flushing

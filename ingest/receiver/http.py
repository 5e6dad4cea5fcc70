"""OTLP over HTTP: POST /v1/traces, /v1/metrics and /v1/logs, protobuf or JSON, plain, gzip or zstd."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

import orjson

from tailtrace.errors import Overloaded, Rejected, TooLarge
from tailtrace.ingest.receiver.answers import status, success
from tailtrace.ingest.receiver.checks import warm_up
from tailtrace.ingest.receiver.counters import Counters
from tailtrace.ingest.receiver.inflate import ENCODINGS
from tailtrace.ingest.receiver.intake import Busy, Intake, Signal, Sink
from tailtrace.ingest.receiver.limits import Limits
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.tokens import Tokens
from tailtrace.version import VERSION

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
_Headers = tuple[tuple[bytes, bytes], ...]

_SIGNALS: Final[dict[str, Signal]] = {"/v1/traces": "traces", "/v1/metrics": "metrics", "/v1/logs": "logs"}
_PROTOBUF: Final = ("application/x-protobuf", "application/protobuf")
_JSON: Final = "application/json"
_DRAIN_S: Final = 2.0


class _Refusal(Exception):
    """An answer that is not 200."""

    def __init__(self, code: int, reason: str, headers: _Headers = ()) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.headers = headers


class _Gone(Exception):
    """The client left before its body was here."""


def create_app(pipeline: Sink, settings: ServerSettings, counters: Counters) -> ASGIApp:
    """The receiver's ASGI application; loads the compiled checks before it returns."""
    warm_up()
    return HttpDoor(Intake(pipeline, Limits.of(settings), counters), Tokens(settings))


class HttpDoor:
    """OTLP/HTTP as an ASGI application, without a framework: at this place only few lines run for each request."""

    def __init__(self, intake: Intake, tokens: Tokens | None = None) -> None:
        """Where `tokens` ask for one of scope `ingest`, it must come as `Authorization: Bearer TOKEN`."""
        self._intake = intake
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        path, method = scope["path"], scope["method"]
        signal = _SIGNALS.get(path.rstrip("/"))
        headers: dict[bytes, bytes] = dict(scope["headers"])
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        json = media not in _PROTOBUF
        unread = True
        try:
            if signal is None:
                await _elsewhere(path, method, send)
                return
            with self._intake.receiving() as hold:
                encoding = self._checked_headers(method, media, headers)
                body = await self._body(headers, receive, hold)
                unread = False
                outcome = await self._accepted(signal, body, encoding, json)
            await _respond(send, 200, success(signal, outcome, json=json), json)
        except _Refusal as refusal:
            if signal is not None:
                self._intake.counters.refused(signal, str(refusal.code))
            if unread and b"expect" not in headers:
                await _drain(receive, 4 * self._intake.limits.body_bytes)
            answer = status(refusal.code, refusal.reason, json=json)
            await _respond(send, refusal.code, answer, json, refusal.headers)
        except _Gone:
            assert signal is not None
            self._intake.counters.refused(signal, "gone")

    def _checked_headers(self, method: str, media: str, headers: dict[bytes, bytes]) -> str:
        """The content encoding of a request that may be read."""
        if method != "POST":
            raise _Refusal(405, f"OTLP is sent with POST, not {method}", ((b"allow", b"POST"),))
        given = headers.get(b"authorization", b"").decode("latin-1")
        if self._tokens is not None and not self._tokens.header_allows(given, "ingest"):
            raise _Refusal(
                401,
                "this receiver wants the header 'Authorization: Bearer TOKEN' with a token of scope ingest",
                ((b"www-authenticate", b"Bearer"),),
            )
        if media not in _PROTOBUF and media != _JSON:
            raise _Refusal(415, f"Content-Type is {media!r}, expected {_PROTOBUF[0]} or {_JSON}")
        encoding = headers.get(b"content-encoding", b"").strip().lower().decode("latin-1") or "identity"
        if encoding not in ENCODINGS:
            raise _Refusal(
                415,
                f"Content-Encoding is {encoding!r}, expected one of {', '.join(ENCODINGS)}",
                ((b"accept-encoding", ", ".join(ENCODINGS).encode()),),
            )
        return encoding

    async def _body(self, headers: dict[bytes, bytes], receive: Receive, hold: Callable[[int], None]) -> bytes:
        """The body as sent, never more of it in memory than the limit."""
        limit = self._intake.limits.body_bytes
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise _Refusal(413, f"the body has {int(declared)} bytes, accepted are {limit}; send smaller batches")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._intake.limits.receive_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    part = message.get("body", b"")
                    size += len(part)
                    if size > limit:
                        raise _Refusal(413, f"the body has more than {limit} bytes; send smaller batches")
                    hold(len(part))
                    parts.append(part)
                    if not message.get("more_body"):
                        return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            raise _Refusal(
                408, f"the body was not complete after {self._intake.limits.receive_timeout_s:.0f} s"
            ) from None
        except Busy as error:
            raise _retry(429, error) from None

    async def _accepted(self, signal: Signal, body: bytes, encoding: str, json: bool) -> Any:
        try:
            return await self._intake.accept(signal, body, encoding=encoding, json=json)
        except Overloaded as error:
            raise _retry(503, error) from error
        except TooLarge as error:
            raise _Refusal(413, str(error)) from error
        except Rejected as error:
            raise _Refusal(400, str(error)) from error
        except Exception as error:
            _log.exception("an OTLP request failed")
            raise _Refusal(500, "the receiver failed on this body; its log says why") from error


def _retry(code: int, error: Overloaded) -> _Refusal:
    return _Refusal(code, str(error), ((b"retry-after", str(error.retry_after_s).encode()),))


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _elsewhere(path: str, method: str, send: Send) -> None:
    """The root says what listens here; every other path is a mistake that the answer names."""
    if path == "/" and method in ("GET", "HEAD"):
        about = {
            "name": "tailtrace",
            "version": VERSION,
            "listens": "OTLP over HTTP",
            "paths": [f"POST {each}" for each in _SIGNALS],
        }
        await _respond(send, 200, b"" if method == "HEAD" else orjson.dumps(about), True)
        return
    raise _Refusal(404, f"nothing is at {path[:100]}; OTLP goes to {', '.join(_SIGNALS)}")


async def _drain(receive: Receive, limit: int) -> None:
    """Reads what is left of a refused body, within bounds: a client that is still sending would not see the answer."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            while limit > 0:
                message = await receive()
                limit -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        pass


async def _respond(send: Send, code: int, body: bytes, json: bool, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    media = b"application/json" if json else b"application/x-protobuf"
    await send(
        {
            "type": "http.response.start",
            "status": code,
            "headers": [(b"content-type", media), (b"content-length", str(len(body)).encode()), *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})

"""/healthz and /readyz for whoever keeps processes alive: no token, no details, in front of the guarded application."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tailtrace.version import VERSION

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Probes:
    """Answers the two probe paths and hands everything else on."""

    def __init__(self, app: ASGIApp, not_ready: Callable[[], str]) -> None:
        """`not_ready` gives the reason why no work can be done, or nothing; it may block and runs in a thread."""
        self._app = app
        self._not_ready = not_ready
        self._started = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == "/healthz":
            uptime_s = round(time.monotonic() - self._started, 1)
            await _answer(send, 200, {"status": "ok", "version": VERSION, "uptime_s": uptime_s})
        elif path == "/readyz":
            reason = await asyncio.to_thread(self._not_ready)
            await _answer(send, 503 if reason else 200, {"status": reason or "ready"})
        else:
            await self._app(scope, receive, send)


async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    """The application of a process without pages."""
    if scope["type"] == "http":
        await _answer(send, 404, {"status": "only /healthz, /readyz and /metrics are here"})


async def _answer(send: Send, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send(
        {"type": "http.response.start", "status": status, "headers": [*headers, (b"cache-control", b"no-store")]}
    )
    await send({"type": "http.response.body", "body": data})

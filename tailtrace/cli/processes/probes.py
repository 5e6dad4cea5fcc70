"""/healthz and /readyz for whoever keeps processes alive, without a token, and /metrics for Prometheus."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from tailtrace.version import VERSION

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Probes:
    """Answers the two probe paths and hands everything else on."""

    def __init__(
        self,
        app: ASGIApp,
        readiness: Callable[[], Mapping[str, Any]],
        metrics: Callable[[], str] = lambda: "",
        admits: Callable[[str], bool] = lambda authorization: True,
    ) -> None:
        """`readiness` has a `status`, which is "ready" or the reason why no work can be done, and figures; `metrics`
        gives the text of /metrics, for those whose Authorization header `admits`. Both may block and run in a thread.
        """
        self._app = app
        self._readiness = readiness
        self._metrics = metrics
        self._admits = admits
        self._started = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == "/healthz":
            uptime_s = round(time.monotonic() - self._started, 1)
            await _answer(send, 200, {"status": "ok", "version": VERSION, "uptime_s": uptime_s})
        elif path == "/readyz":
            found = dict(await asyncio.to_thread(self._readiness))
            await _answer(send, 200 if found["status"] == "ready" else 503, found)
        elif path == "/metrics":
            given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            if self._admits(given):
                await _send(send, 200, b"text/plain; version=0.0.4", (await asyncio.to_thread(self._metrics)).encode())
            else:
                await _answer(send, 401, {"status": "a token of scope read is needed: Authorization: Bearer TOKEN"})
        else:
            await self._app(scope, receive, send)


async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    """The application of a process without pages."""
    if scope["type"] == "http":
        await _answer(send, 404, {"status": "only /healthz, /readyz and /metrics are here"})


async def _answer(send: Send, status: int, body: dict[str, Any]) -> None:
    await _send(send, status, b"application/json", json.dumps(body).encode())


async def _send(send: Send, status: int, media: bytes, data: bytes) -> None:
    headers = [(b"content-type", media), (b"content-length", str(len(data)).encode())]
    await send(
        {"type": "http.response.start", "status": status, "headers": [*headers, (b"cache-control", b"no-store")]}
    )
    await send({"type": "http.response.body", "body": data})

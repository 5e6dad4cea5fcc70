"""Script bundles compressed once and kept, because the largest takes longer to compress than to send."""

from __future__ import annotations

import gzip
import threading
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PREFIXES: Final = ("/_dash-component-suites/", "/assets/", "/static/")
# Dash's polyfills are for browsers of 2015, take a quarter of a second to run and make trim() and parseInt() slow.
_POLYFILL: Final = "/_dash-component-suites/dash/deps/polyfill@"
_MAX_BYTES: Final = 32 * 1024 * 1024
_MIN_BYTES: Final = 1024


class SuiteCache:
    """ASGI middleware: gzip for fingerprinted bundles and assets, kept by path and query up to 32 MiB."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[str, tuple[list[tuple[bytes, bytes]], bytes]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith(_PREFIXES)
        if wanted and scope["path"].startswith(_POLYFILL):
            kind = (b"content-type", b"text/javascript"), (b"cache-control", b"public, max-age=31536000, immutable")
            await _answer(list(kind), b"/* not needed */", send)
            return
        if not wanted or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            await self._app(scope, receive, send)
            return
        key = scope["path"] + "?" + scope.get("query_string", b"").decode("latin-1")
        kept = self._kept.get(key)
        if kept is None:
            await self._fetch(key, scope, receive, send)
        else:
            await _answer(kept[0], kept[1], send)

    async def _fetch(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request with compression off, compress its body, keep it when it is a plain 200."""
        headers = [
            pair
            for pair in scope["headers"]
            if pair[0] not in (b"accept-encoding", b"if-none-match", b"if-modified-since")
        ]
        start: Message | None = None
        body = bytearray()

        async def collect(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))

        await self._app({**scope, "headers": headers}, receive, collect)
        if start is None:
            return
        if start["status"] != 200 or len(body) < _MIN_BYTES:
            await send(start)
            await send({"type": "http.response.body", "body": bytes(body)})
            return
        packed = gzip.compress(bytes(body), 6, mtime=0)
        made = MutableHeaders(raw=list(start["headers"]))
        made["Content-Encoding"] = "gzip"
        made["Content-Length"] = str(len(packed))
        made["Vary"] = "Accept-Encoding"
        if "?m=" in key or ".v" in key:
            made["Cache-Control"] = "public, max-age=31536000, immutable"
        self._keep(key, made.raw, packed)
        await _answer(made.raw, packed, send)

    def _keep(self, key: str, headers: list[tuple[bytes, bytes]], packed: bytes) -> None:
        with self._lock:
            if key not in self._kept and self._bytes + len(packed) <= _MAX_BYTES:
                self._kept[key] = (headers, packed)
                self._bytes += len(packed)


async def _answer(headers: list[tuple[bytes, bytes]], packed: bytes, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": packed})

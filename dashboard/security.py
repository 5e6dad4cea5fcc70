"""Who may ask: host check against DNS rebinding, origin check against foreign pages, token, and headers that keep
pages to themselves.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailtrace.analytics.queries.json import to_json
from tailtrace.dashboard.api.errors import error_body
from tailtrace.errors import ConfigError
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.tokens import Tokens

COOKIE: Final = "tailtrace_session"
_OPEN: Final = ("/login", "/static/", "/api/v1/health")


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reachable from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware, outermost. Without a token, only names that cannot be rebound are answered: addresses,
    localhost, our own.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, script_hashes: Sequence[str] = ()) -> None:
        self._tokens = Tokens(settings)
        if not self._tokens.required() and not settings.insecure and not is_loopback(settings.host):
            raise ConfigError(
                f"{settings.host} is reachable from other machines: "
                "set a token (TAILTRACE_TOKEN), or --insecure to go without"
            )
        self._app = app
        self._names = {"localhost", settings.host.lower(), socket.gethostname().lower()}
        self._policy = (
            f"default-src 'self'; script-src 'self' {' '.join(script_hashes)}; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; "
            "base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await self._refuse(refusal, scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                made = MutableHeaders(scope=message)
                made["Content-Security-Policy"] = self._policy
                made["X-Content-Type-Options"] = "nosniff"
                made["Referrer-Policy"] = "same-origin"
            await send(message)

        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        guarded = self._tokens.required()
        if not guarded and not self._host_known(host):
            name = host[:100]
            return _json(
                403,
                "host_not_allowed",
                f"this server does not answer to the host name {name!r}; use its address or localhost",
            )
        origin = headers.get("origin")
        if scope.get("method") not in ("GET", "HEAD", "OPTIONS") and origin and urlsplit(origin).netloc != host:
            return _json(403, "foreign_origin", "requests that other sites' pages make are not accepted")
        if guarded and not scope["path"].startswith(_OPEN) and not self._known(headers):
            return self._unauthorised(scope)
        return None

    def _host_known(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower()
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _known(self, headers: Headers) -> bool:
        if self._tokens.header_allows(headers.get("authorization", ""), "read"):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return self._tokens.session_allows(cookie, "read")

    def _unauthorised(self, scope: Scope) -> Response:
        path = scope["path"]
        if path.startswith(("/api/", "/_dash", "/assets/", "/mcp")) or scope["type"] != "http":
            return _json(401, "unauthorized", "a token is needed: send it as Authorization: Bearer TOKEN")
        query = scope.get("query_string", b"").decode("latin-1")
        return RedirectResponse(f"/login?next={quote(path + ('?' + query if query else ''), safe='')}", 303)

    async def _refuse(self, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4003})
            return
        await response(scope, receive, send)


def _json(status: int, code: str, message: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(to_json(error_body(code, message)), status, headers, "application/json")

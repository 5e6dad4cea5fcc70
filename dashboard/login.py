"""The page that turns a token into a session cookie."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs, quote

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tailtrace.dashboard.security import COOKIE
from tailtrace.dashboard.text import text_of_request
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.tokens import Tokens, session_value

_PAGE = """<!DOCTYPE html><html lang="{lang}"><head><meta charset="utf-8"><title>Tailtrace</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><script src="/static/theme.js"></script>
<link rel="stylesheet" href="/static/login.css"></head><body><form method="post" action="/login?next={next}">
<h1>Tailtrace</h1><p>{explain}</p>{failed}<label for="token">{label}</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button type="submit">{button}</button></form></body></html>"""


def add_login(server: FastAPI, settings: ServerSettings) -> None:
    """GET and POST /login. Without a token set, it only leads to the pages."""
    tokens = Tokens(settings)

    @server.get("/login", include_in_schema=False)
    async def show(request: Request, next: str = "/") -> Response:
        return _page(request, next) if tokens.required() else RedirectResponse("/", 303)

    @server.post("/login", include_in_schema=False)
    async def check(request: Request, next: str = "/") -> Response:
        body = (await request.body())[:10_000].decode("utf-8", "replace")
        given = parse_qs(body).get("token", [""])[0]
        if not tokens.allows(given, "read"):
            known = tokens.allows(given, "ingest")
            return _page(
                request, next, problem="login.no_read" if known else "login.failed", status=403 if known else 401
            )
        response = RedirectResponse(local_path(next), 303)
        response.set_cookie(
            COOKIE,
            session_value(given),
            max_age=30 * 86400,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response


def local_path(target: str) -> str:
    """The path to go on to; anything that could leave this server becomes the first page."""
    return (
        target
        if target.startswith("/") and not target.startswith(("//", "/\\")) and "\n" not in target and "\r" not in target
        else "/"
    )


def _page(request: Request, target: str, *, problem: str = "", status: int = 200) -> HTMLResponse:
    text = text_of_request(request.headers.get("accept-language", ""), request.cookies)
    told = f'<p class="failed" role="alert">{escape(text(problem))}</p>' if problem else ""
    html = _PAGE.format(
        lang=escape(text.language),
        next=escape(quote(local_path(target), safe="")),
        explain=escape(text("login.explain")),
        failed=told,
        label=escape(text("login.token")),
        button=escape(text("login.button")),
    )
    return HTMLResponse(html, status)

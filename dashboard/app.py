"""One ASGI application: JSON under /api/v1, the pages everywhere else, guarded by one middleware."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from dash import Dash
from dash.backends._fastapi import reset_current_request, set_current_request
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from tailtrace.dashboard.api import add_api
from tailtrace.dashboard.index_page import FIRST_DRAWING, first_drawing_tag, first_script_hashes, index_page
from tailtrace.dashboard.login import add_login
from tailtrace.dashboard.mcp import add_mcp
from tailtrace.dashboard.own_assets import add_assets
from tailtrace.dashboard.router import add_router
from tailtrace.dashboard.security import Guard
from tailtrace.dashboard.suites import SuiteCache
from tailtrace.dashboard.text import TAGS, text_of_request
from tailtrace.dashboard.views import NamedStore
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.version import VERSION

Health = Callable[[], dict[str, Any]]
_log = logging.getLogger(__name__)
_HERE: Final = Path(__file__).resolve().parent


def create_app(store: Store, settings: ServerSettings, health: Health | None = None) -> FastAPI:
    """The dashboard and API over a store. `health` adds what the process knows about itself to /api/v1/health.

    Raises ConfigError for settings that would leave it open to the network without a token.
    """
    server = FastAPI(
        title="Tailtrace", version=VERSION, docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json"
    )
    store = NamedStore(store)
    add_api(server, store, settings, health)
    add_login(server, settings)
    add_mcp(server, store)
    add_assets(server)
    server.mount("/static", StaticFiles(directory=_HERE / "static"), name="static")
    options: dict[str, Any] = {  # Dash's own hints do not know that a FastAPI app may be its server
        "server": server,
        "assets_folder": str(_HERE / "assets"),
        "assets_ignore": ".",  # the index page names them as one file each
        "serve_locally": True,
        "compress": False,  # the middlewares below do it, once per file instead of once per request
        "title": "Tailtrace",
        "update_title": None,
        "suppress_callback_exceptions": True,
        "index_string": index_page(),
        "enable_mcp": False,
        "add_log_handler": False,
    }
    dash: Any = Dash(__name__, **options)
    _add_pages(server, dash, add_router(dash, store, settings))
    server.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=4)
    server.add_middleware(SuiteCache)
    server.add_middleware(Guard, settings=settings, script_hashes=(*dash.csp_hashes(), *first_script_hashes()))
    return server


def _add_pages(server: FastAPI, dash: Any, draw: Callable[..., str]) -> None:
    """Every other path is a page. Dash's own catch-all looks for the newest app of the process, so ours comes first."""
    # Dash builds itself in its first request; done now, no request meets a half-built app (plotly/dash#3971).
    dash._setup_server()

    async def page(request: Request) -> StreamingResponse:
        """The page's frame at once, and what it shows as soon as it is drawn."""
        view = secrets.token_hex(16)
        pathname = request.scope["raw_path"].decode("latin-1")  # as the browser's address has it
        search = f"?{request.url.query}" if request.url.query else ""
        drawing = asyncio.create_task(asyncio.to_thread(draw, request.headers, request.cookies, pathname, search, view))
        token: Any = set_current_request(request)  # type: ignore[no-untyped-call]
        try:
            language = text_of_request(request.headers.get("accept-language", ""), request.cookies).language
            html = dash.index().replace('<html lang="en">', f'<html lang="{TAGS[language]}" data-view="{view}">', 1)
        finally:
            reset_current_request(token)  # type: ignore[no-untyped-call]
        return StreamingResponse(
            _in_parts(html, drawing),
            media_type="text/html",
            headers={"Cache-Control": "no-cache", "Vary": "Cookie, Accept-Language"},
        )

    # The root is Dash's own too, so ours goes before it.
    server.add_api_route("/", page, include_in_schema=False)
    server.router.routes.insert(0, server.router.routes.pop())
    server.add_api_route("/{path:path}", page, include_in_schema=False)


async def _in_parts(html: str, drawing: asyncio.Task[str]) -> AsyncIterator[str]:
    before, after = html.split(FIRST_DRAWING)
    yield before
    try:
        yield first_drawing_tag(await drawing)
    except Exception:  # the page then asks for it
        _log.exception("the first drawing of a page failed")
    yield after

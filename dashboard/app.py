"""One ASGI application: JSON under /api/v1, the pages everywhere else, guarded by one middleware."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dash import Dash
from dash.backends._fastapi import reset_current_request, set_current_request
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from tailtrace.dashboard.api import add_api
from tailtrace.dashboard.index_page import index_page
from tailtrace.dashboard.login import add_login
from tailtrace.dashboard.mcp import add_mcp
from tailtrace.dashboard.router import add_router
from tailtrace.dashboard.security import Guard
from tailtrace.dashboard.suites import SuiteCache
from tailtrace.dashboard.text import TAGS, text_of_request
from tailtrace.dashboard.views import NamedStore
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.version import VERSION

Health = Callable[[], dict[str, Any]]
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
    server.mount("/static", StaticFiles(directory=_HERE / "static"), name="static")
    options: dict[str, Any] = {  # Dash's own hints do not know that a FastAPI app may be its server
        "server": server,
        "assets_folder": str(_HERE / "assets"),
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
    add_router(dash, store, settings)
    _add_pages(server, dash)
    server.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=4)
    server.add_middleware(SuiteCache)
    server.add_middleware(Guard, settings=settings, script_hashes=tuple(dash.csp_hashes()))
    return server


def _add_pages(server: FastAPI, dash: Any) -> None:
    """Every other path is a page. Dash's own catch-all looks for the newest app of the process, so ours comes first."""
    # Dash builds itself in its first request; done now, no request meets a half-built app (plotly/dash#3971).
    dash._setup_server()

    @server.get("/{path:path}", include_in_schema=False)
    async def page(request: Request, path: str) -> HTMLResponse:
        token: Any = set_current_request(request)  # type: ignore[no-untyped-call]
        try:
            language = text_of_request(request.headers.get("accept-language", ""), request.cookies).language
            return HTMLResponse(
                dash.index().replace('<html lang="en">', f'<html lang="{TAGS[language]}">', 1),
                headers={"Cache-Control": "no-cache", "Vary": "Cookie, Accept-Language"},
            )
        finally:
            reset_current_request(token)  # type: ignore[no-untyped-call]

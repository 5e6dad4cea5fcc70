"""The JSON API under /api/v1: each route runs one query and writes its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import Response

from tailtrace.dashboard.api.alerts import add_alerts
from tailtrace.dashboard.api.answers import add_answers
from tailtrace.dashboard.api.errors import add_error_handlers, error_response
from tailtrace.dashboard.api.health import add_health
from tailtrace.dashboard.api.requests import add_requests
from tailtrace.dashboard.api.services import add_services
from tailtrace.dashboard.api.sql import add_sql
from tailtrace.dashboard.api.verdicts import add_verdicts
from tailtrace.dashboard.api.views import add_views
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store


def add_api(
    server: FastAPI, store: Store, settings: ServerSettings, health: Callable[[], dict[str, Any]] | None
) -> None:
    """All routes, then a JSON 404 for whatever else lies below /api."""
    add_error_handlers(server)
    server.state.store = store
    router = APIRouter(prefix="/api/v1")
    add_health(router, store, settings, health)
    add_services(router, store)
    add_requests(router, store)
    add_answers(router, store)
    add_alerts(router, store, settings)
    add_sql(router, store)
    add_verdicts(router, store, settings)
    add_views(router, store)
    server.include_router(router)

    @server.api_route("/api", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    @server.api_route("/api/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def missing(path: str = "") -> Response:
        return error_response(404, "not_found", "there is no such address below /api; /api/v1/openapi.json lists them")

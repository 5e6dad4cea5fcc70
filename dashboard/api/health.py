"""Whether the process and its store answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tailtrace.analytics.queries.json import to_json
from tailtrace.errors import StoreError
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.ingest.tokens import Tokens
from tailtrace.version import VERSION


def add_health(
    router: APIRouter, store: Store, settings: ServerSettings, health: Callable[[], dict[str, Any]] | None
) -> None:
    """GET /health: 200 or 503. Details only to who holds a token, where one is asked for."""
    tokens = Tokens(settings)

    @router.get("/health")
    def state(request: Request) -> Response:
        try:
            store.query("SELECT 1 AS one", role="ui")
            problem = ""
        except StoreError as error:
            problem = str(error)
        body: dict[str, Any] = {"status": "ok" if not problem else "store_unavailable", "version": VERSION}
        if tokens.header_allows(request.headers.get("authorization", ""), "read"):
            body.update({"problem": problem or None, **(health() if health else {})})
        return Response(to_json(body), 503 if problem else 200, media_type="application/json")

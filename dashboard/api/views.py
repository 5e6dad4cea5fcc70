"""Routes about the statements that a view of a page runs: how far they are, and an end to them."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from tailtrace.analytics.queries import to_json
from tailtrace.dashboard.views import progress, stop
from tailtrace.ingest.store import Store


def add_views(router: APIRouter, store: Store) -> None:
    """GET and DELETE /views/{view}. The id is random and known to the browser alone that made it."""

    @router.get("/views/{view}")
    def how_far(view: str) -> Response:
        return Response(to_json(progress(store, view)), media_type="application/json")

    @router.delete("/views/{view}", status_code=204)
    def end(view: str) -> Response:
        stop(store, view)
        return Response(status_code=204)

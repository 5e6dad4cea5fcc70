"""The one shape of an error, and how this product's errors become status codes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from tailtrace.analytics.queries.json import to_json
from tailtrace.dashboard.text import text_of_request
from tailtrace.errors import NotFound, Overloaded, Rejected, StoreError, TailtraceError, TooLarge

_STATUS: tuple[tuple[type[TailtraceError], int, str], ...] = (
    (NotFound, 404, "not_found"),
    (Overloaded, 503, "overloaded"),
    (TooLarge, 413, "too_large"),
    (Rejected, 400, "rejected"),
    (StoreError, 503, "store_unavailable"),
    (TailtraceError, 500, "failed"),
)


def error_body(code: str, message: str) -> dict[str, Any]:
    """{"error": {"code", "message"}}."""
    return {"error": {"code": code, "message": message}}


def error_response(status: int, code: str, message: str) -> Response:
    """An error as a response."""
    return Response(to_json(error_body(code, message)), status, media_type="application/json")


def _said(request: Request, message: str) -> str:
    """The message in the reader's language: pages show it as it comes. `code` is for programs."""
    return text_of_request(request.headers.get("accept-language", ""), request.cookies).said(message)


def add_error_handlers(server: FastAPI) -> None:
    """Every failure below /api is JSON of the one shape."""

    @server.exception_handler(TailtraceError)
    async def ours(request: Request, error: TailtraceError) -> Response:
        status, code = next((status, code) for kind, status, code in _STATUS if isinstance(error, kind))
        return error_response(status, code, _said(request, str(error)))

    @server.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first.get("loc", ())[1:])
        return error_response(400, "rejected", f"{where}: {_said(request, first.get('msg', 'not accepted'))}")

    @server.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "failed")
        return error_response(error.status_code, code, _said(request, str(error.detail)))

    @server.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        # Starlette logs the traceback after this answer, which says nothing of the inside.
        return error_response(500, "failed", "a failure of the server's own: its log has the reason")

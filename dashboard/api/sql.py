"""POST /sql: one read-only statement with parameters, limited in rows and time."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from tailtrace.analytics.queries import run_sql, to_json
from tailtrace.errors import Rejected, StoreError
from tailtrace.ingest.store import Store


class Statement(BaseModel):
    """A SELECT with `{name:Type}` parameters."""

    sql: str = Field(min_length=1, max_length=100_000)
    parameters: dict[str, Any] = Field(default_factory=dict)
    limit: int = Field(1000, ge=1, le=10_000)
    seconds: float = Field(30, gt=0, le=60)


def add_sql(router: APIRouter, store: Store) -> None:
    """The body must be application/json, which a foreign page cannot send without being asked first."""

    @router.post("/sql")
    def sql(statement: Statement) -> Response:
        try:
            answer = run_sql(
                store, statement.sql, statement.parameters, limit=statement.limit, seconds=statement.seconds
            )
        except StoreError as error:
            raise Rejected(f"the database refused the statement: {error}") from error
        return Response(to_json(answer), media_type="application/json")

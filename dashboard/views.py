"""Which view of a page asked a query: so that leaving the page stops it, and a long one can say how far it is.

The browser names each view by a random id. Every statement of the view carries it as the setting `log_comment`, in
whatever process runs it, so any worker can ask the store about it or stop it; nothing is kept here. A comment in the
statement would be lost: the engine writes a statement anew when it fills in parameters.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tailtrace.errors import ConfigError, Rejected
from tailtrace.ingest.store import Role, Signal, Store
from tailtrace.ingest.store.protocol import Parameters, Settings
from tailtrace.ingest.store.statements import query_id_comment

HEADER: Final = "x-tailtrace-view"
_VIEW: Final[ContextVar[str]] = ContextVar("view", default="")
_PROGRESS: Final = """
SELECT count() AS running, sum(read_rows) AS read, sum(total_rows_approx) AS total, max(elapsed) AS seconds
FROM system.processes WHERE Settings['log_comment'] = {view:String}
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """Statements of a view that run now; `rows_total` is the store's estimate and grows while parts are found."""

    view: str
    running: int
    rows_read: int
    rows_total: int
    elapsed_ns: int


def use_view(view: str) -> None:
    """Statements of this context belong to `view` from now on; an id that is none is as good as no id."""
    try:
        query_id_comment(view)
    except ConfigError:
        view = ""
    _VIEW.set(view)


def progress(store: Store, view: str) -> Progress:
    """How far the statements of a view are. Raises Rejected for what is no id."""
    _check(view)
    row = store.query(_PROGRESS, {"view": view}, role="jobs")[0]
    return Progress(view, int(row["running"]), int(row["read"]), int(row["total"]), round(float(row["seconds"]) * 1e9))


def stop(store: Store, view: str) -> None:
    """Stop the statements of a view. Raises Rejected for what is no id."""
    _check(view)
    store.cancel(view)


def was_stopped(error: BaseException) -> bool:
    """Whether a statement failed because it was stopped."""
    return "QUERY_WAS_CANCELLED" in str(error)


def _check(view: str) -> None:
    try:
        query_id_comment(view)
    except ConfigError as error:
        raise Rejected("a view's id has 1 to 64 letters, digits and dashes") from error


class NamedStore:
    """A store whose reads carry the id of the view that asked."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def query_arrow(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> pa.Table:
        return self._store.query_arrow(sql, parameters, role=role, settings=_named(settings))

    def query(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> list[dict[str, Any]]:
        return self._store.query(sql, parameters, role=role, settings=_named(settings))

    def insert_arrow(self, table: str, data: pa.Table, *, token: str | None = None, role: Role = "jobs") -> None:
        self._store.insert_arrow(table, data, token=token, role=role)

    def insert_segment(self, signal: Signal, path: Path, token: str) -> None:
        self._store.insert_segment(signal, path, token)

    def command(self, sql: str, parameters: Parameters = None, *, role: Role = "jobs") -> None:
        self._store.command(sql, parameters, role=role)

    def cancel(self, query_id: str) -> None:
        self._store.cancel(query_id)

    def close(self) -> None:
        self._store.close()


def _named(settings: Settings) -> Settings:
    view = _VIEW.get()
    return {**(settings or {}), "log_comment": view} if view else settings

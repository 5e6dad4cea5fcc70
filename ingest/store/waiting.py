"""A store on a server that may be away: opened at the first use that finds it, with the schema brought up to date.

A receiver must take telemetry into its journal also while the server is not there yet, so opening must not be a
condition for starting.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailtrace.errors import SchemaTooNew, StoreDead, StoreError
from tailtrace.ingest.store.protocol import Parameters, Role, Settings, Signal, Store

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_TELL_S = 30.0


class WaitingStore:
    """A store that `open_store` opens when it can; until then every call raises StoreError with the reason."""

    def __init__(self, open_store: Callable[[], Store], clock: Callable[[], float] = time.monotonic) -> None:
        """Tries once at once; at most once a second after that, and says so every half minute."""
        self._open = open_store
        self._clock = clock
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._closed = False
        self._reason = ""
        self._tried_at = self._told_at = float("-inf")
        try:
            self._there()
        except SchemaTooNew:
            raise
        except StoreError:
            pass

    def query_arrow(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> pa.Table:
        """See Store."""
        return self._there().query_arrow(sql, parameters, role=role, settings=settings)

    def query(
        self, sql: str, parameters: Parameters = None, *, role: Role = "ui", settings: Settings = None
    ) -> list[dict[str, Any]]:
        """See Store."""
        return self._there().query(sql, parameters, role=role, settings=settings)

    def insert_arrow(self, table: str, data: pa.Table, *, token: str | None = None, role: Role = "jobs") -> None:
        """See Store."""
        self._there().insert_arrow(table, data, token=token, role=role)

    def insert_segment(self, signal: Signal, path: Path, token: str) -> None:
        """See Store."""
        self._there().insert_segment(signal, path, token)

    def command(self, sql: str, parameters: Parameters = None, *, role: Role = "jobs") -> None:
        """See Store."""
        self._there().command(sql, parameters, role=role)

    def cancel(self, query_id: str) -> None:
        """See Store."""
        self._there().cancel(query_id)

    def close(self) -> None:
        """See Store."""
        with self._lock:
            self._closed = True
            if self._store is not None:
                self._store.close()

    def _there(self) -> Store:
        if self._store is not None:
            return self._store
        with self._lock:
            if self._closed:
                raise StoreDead("this store is closed: open a new one")
            if self._store is None:
                self._try()
            assert self._store is not None
            return self._store

    def _try(self) -> None:
        now = self._clock()
        if now - self._tried_at < _RETRY_S:
            raise StoreError(self._reason)
        self._tried_at = now
        try:
            self._store = self._open()
        except SchemaTooNew:
            raise
        except StoreError as error:
            self._reason = str(error)
            if now - self._told_at >= _TELL_S:
                self._told_at = now
                log.warning("%s; telemetry is taken into the journal meanwhile, and the server is tried again", error)
            raise
        if self._reason:
            log.info("the ClickHouse server is there")

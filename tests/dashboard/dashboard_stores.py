"""Stores with a fault: slow for one service, or away."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tailtrace.errors import StoreError
from tailtrace.ingest.store import Store


class SlowFirst:
    """A store whose queries for service `gateway` wait until told to go on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.go = threading.Event()
        self.waiting = threading.Event()

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None, **options: Any) -> Any:
        if (parameters or {}).get("service") == "gateway":
            self.waiting.set()
            assert self.go.wait(20)
        return self._store.query(sql, parameters, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Down:
    """A store that refuses every question while `down`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = True

    def query(self, *arguments: Any, **options: Any) -> Any:
        if self.down:
            raise StoreError("the database is away")
        return self._store.query(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

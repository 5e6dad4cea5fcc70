"""A server that is away at the start is found when it comes."""

import pytest

from tailtrace.errors import SchemaTooNew, StoreDead, StoreError
from tailtrace.ingest.store.waiting import WaitingStore


class There:
    closed = False

    def query(self, sql: str, parameters: object = None, **_: object) -> list[dict[str, int]]:
        return [{"one": 1}]

    def close(self) -> None:
        self.closed = True


def test_calls_say_why_until_the_server_is_there_and_then_reach_it() -> None:
    now, away, opened = [0.0], [True], []

    def open_store() -> There:
        if away[0]:
            raise StoreError("the ClickHouse server at http://db:8123 cannot be used: refused")
        opened.append(There())
        return opened[-1]

    store = WaitingStore(open_store, lambda: now[0])  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="refused"):
        store.query("SELECT 1")
    away[0] = False
    with pytest.raises(StoreError, match="refused"):  # asked again within the second
        store.query("SELECT 1")
    now[0] = 1.5
    assert store.query("SELECT 1") == [{"one": 1}]
    store.query("SELECT 1")
    assert len(opened) == 1
    store.close()
    assert opened[0].closed


def test_a_newer_schema_is_not_waited_for() -> None:
    def open_store() -> There:
        raise SchemaTooNew("upgrade")

    with pytest.raises(SchemaTooNew):
        WaitingStore(open_store)  # type: ignore[arg-type]


def test_a_closed_store_says_so() -> None:
    def open_store() -> There:
        raise StoreError("away")

    store = WaitingStore(open_store)  # type: ignore[arg-type]
    store.close()
    with pytest.raises(StoreDead):
        store.query("SELECT 1")

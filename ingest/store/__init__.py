"""The store: where telemetry and everything derived from it is kept."""

from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store.migrations import ddl, migrate
from tailtrace.ingest.store.protocol import Role, Signal, Store

__all__ = ["Role", "Signal", "Store", "ddl", "migrate", "open_store", "open_store_when_there"]


def open_store(settings: ServerSettings) -> Store:
    """The store that the settings name, with this release's schema in it.

    Raises StoreLocked when another process owns the data directory, SchemaTooNew when a newer release wrote it.
    """
    store: Store
    if settings.clickhouse_url:
        from tailtrace.ingest.store.server import ServerStore

        store = ServerStore(settings.clickhouse_url)
    else:
        from tailtrace.ingest.store.embedded import EmbeddedStore

        store = EmbeddedStore(settings.data, settings.memory_bytes)
    try:
        migrate(store, shared=bool(settings.clickhouse_url))
    except BaseException:
        store.close()
        raise
    return store


def open_store_when_there(settings: ServerSettings) -> Store:
    """Like `open_store`, but a ClickHouse server that is away is waited for by whoever uses the store."""
    if not settings.clickhouse_url:
        return open_store(settings)
    from tailtrace.ingest.store.waiting import WaitingStore

    return WaitingStore(lambda: open_store(settings))

"""Fixtures that every room's tests may use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store


@pytest.fixture(scope="session")
def _engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The one embedded engine of this test process: chdb allows one path per process."""
    store = open_store(ServerSettings(data=tmp_path_factory.mktemp("engine")))
    yield store
    store.close()


@pytest.fixture
def store(_engine: Store) -> Store:
    """An embedded store whose tables are empty."""
    tables = _engine.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree' "
        "AND name != 'schema_version' AND total_rows > 0"
    )
    for table in tables:
        _engine.command(f"TRUNCATE TABLE {table['name']}")
    return _engine


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    """Settings whose data directory is this test's own and whose listeners take any free port."""
    return ServerSettings(data=tmp_path / "data")

"""Migrators of one database take turns."""

import threading
from pathlib import Path

import pytest

from tailtrace.errors import StoreError
from tailtrace.ingest.store import Store, migrate
from tailtrace.ingest.store.migration_lock import migration_lock


@pytest.fixture(autouse=True)
def _unlocked(store: Store) -> None:
    store.command("DROP TABLE IF EXISTS schema_lock")


def test_one_at_a_time_and_each_migration_once(store: Store, tmp_path: Path) -> None:
    store.command("DROP TABLE IF EXISTS made")
    newest = max(int(row["v"]) for row in store.query("SELECT Version AS v FROM schema_version"))
    for row in store.query("SELECT DISTINCT Version AS v, Name AS n FROM schema_version"):
        (tmp_path / f"{row['v']:04d}_{row['n']}.sql").write_text("SELECT 1;\n")
    once = f"{newest + 1:04d}_test_once.sql"
    (tmp_path / once).write_text("CREATE TABLE made (A UInt8) ENGINE = Memory;\nINSERT INTO made VALUES (1);\n")
    applied: list[list[int]] = []
    threads = [threading.Thread(target=lambda: applied.append(migrate(store, tmp_path, shared=True))) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(applied) == [[], [newest + 1]]
        assert store.query("SELECT count() AS n FROM made") == [{"n": 1}]
    finally:
        store.command("DROP TABLE IF EXISTS made")
        store.command(
            "ALTER TABLE schema_version DELETE WHERE Version = {v:UInt32} SETTINGS mutations_sync = 1",
            {"v": newest + 1},
        )


def test_a_migrator_that_died_is_not_waited_for_for_ever(store: Store) -> None:
    store.command("CREATE TABLE schema_lock (Nothing UInt8) ENGINE = Memory")
    with pytest.raises(StoreError, match="too long"), migration_lock(store, wait_s=0.0):
        pass
    with migration_lock(store, wait_s=20.0, dead_s=0) as alive:
        alive()
    assert store.query("EXISTS TABLE schema_lock") == [{"result": 0}]

"""A copy of a data directory is of one moment, whole or refused, and doubles nothing when it is taken up."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bodies import trace_body

from tailtrace.errors import ConfigError, StoreError
from tailtrace.ingest.backup import backup_running, backup_stopped, restore
from tailtrace.ingest.journal import Journal
from tailtrace.ingest.store import Store
from tailtrace.ingest.store.embedded import EmbeddedStore

HERE = Path(__file__).resolve().parent


@pytest.fixture
def owned(store: Store) -> Iterator[tuple[EmbeddedStore, Path]]:
    """The embedded store and its data directory, whose journal is empty before and after."""
    assert isinstance(store, EmbeddedStore)
    data = Path(str(store.query("SELECT value FROM system.server_settings WHERE name = 'path'")[0]["value"])).parent
    if data.name == "db":
        data = data.parent
    yield store, data
    for path in sorted((data / "journal").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def taken_up(data: Path) -> dict[str, int]:
    """What a process finds that starts on a directory."""
    run = subprocess.run(
        [sys.executable, str(HERE / "restored_directory.py"), str(data)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(HERE)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found: dict[str, int] = json.loads(run.stdout)
    return found


def test_a_restored_copy_stores_its_journal_once(owned: tuple[EmbeddedStore, Path], tmp_path: Path) -> None:
    """A segment that was stored but not yet removed, one that was not, and a torn last record."""
    store, data = owned
    journal = Journal(data / "journal" / "traces", "traces")
    journal.append([trace_body(3), trace_body(2)], 5)
    stored = journal.seal()
    assert stored is not None
    store.insert_segment("traces", stored.path, stored.id)
    journal.append([trace_body(4)], 4)
    with journal.active.path.open("ab") as file:
        file.write(b"\xff\x7fhalf a record")
    made = backup_running(store, data, tmp_path / "backup")
    assert made.bytes > 0
    assert not (data / "backup-staging").exists()
    # What comes later is not in the copy, and the store goes on.
    other = Journal(tmp_path / "later", "traces")
    other.append([trace_body(7)], 7)
    later = other.seal()
    assert later is not None
    store.insert_segment("traces", later.path, later.id)
    assert store.query("SELECT count() AS n FROM otel_traces") == [{"n": 12}]

    restore(tmp_path / "backup", tmp_path / "data")
    expected = {"spans": 9, "distinct": 9, "bounds": 3, "inbox": 9, "journal": 0}
    assert taken_up(tmp_path / "data") == expected
    assert taken_up(tmp_path / "data") == expected
    # A stopped directory is copied the same way.
    backup_stopped(tmp_path / "data", tmp_path / "second")
    restore(tmp_path / "second", tmp_path / "again")
    assert taken_up(tmp_path / "again") == expected


def test_at_rest_nothing_is_inserted_and_readers_go_on(owned: tuple[EmbeddedStore, Path], tmp_path: Path) -> None:
    store, _ = owned
    journal = Journal(tmp_path / "traces", "traces")
    journal.append([trace_body(1)], 1)
    segment = journal.seal()
    assert segment is not None
    done = threading.Event()

    def insert() -> None:
        store.insert_segment("traces", segment.path, segment.id)
        done.set()

    thread = threading.Thread(target=insert)
    with store.at_rest():
        thread.start()
        assert store.query("SELECT count() AS n FROM otel_traces") == [{"n": 0}]
        assert not done.wait(0.3)
    thread.join(30)
    assert store.query("SELECT count() AS n FROM otel_traces") == [{"n": 1}]


def test_a_store_that_does_not_come_to_rest_says_so_and_works_on(owned: tuple[EmbeddedStore, Path]) -> None:
    store, _ = owned
    with store._connection("insert"), pytest.raises(StoreError, match="come to rest within 0 s"), store.at_rest(0.05):
        pass
    store.command("SELECT 1")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small copy."""
    data = tmp_path / "data"
    (data / "journal" / "traces").mkdir(parents=True)
    (data / "journal" / "traces" / "a.otlp").write_bytes(b"abc")
    (data / "tokens.json").write_text("{}")
    (data / "tokens.json").chmod(0o600)
    (data / "owner.lock").write_text("1")
    backup_stopped(data, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_copy_keeps_modes_and_leaves_the_lock_behind(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    restore(copy, tmp_path / "empty")
    assert (tmp_path / "empty" / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "empty" / "journal" / "traces" / "a.otlp").read_bytes() == b"abc"
    assert not (tmp_path / "empty" / "owner.lock").exists()


@pytest.mark.parametrize("damage", [b"abd", b"ab"])
def test_a_damaged_copy_is_refused_and_leaves_nothing(copy: Path, tmp_path: Path, damage: bytes) -> None:
    (copy / "data" / "journal" / "traces" / "a.otlp").write_bytes(damage)
    with pytest.raises(StoreError, match="damaged"):
        restore(copy, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "new.restoring").exists()


def test_a_copy_that_was_not_finished_is_none(copy: Path, tmp_path: Path) -> None:
    (copy / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="not finished"):
        restore(copy, tmp_path / "new")


@pytest.mark.parametrize(
    "change", [{"files": {"../out": [3, ""]}}, {"links": {"a": "../../out"}}, {"links": {"a": "/etc"}}, {"format": 2}]
)
def test_a_manifest_that_reaches_outside_is_refused(copy: Path, tmp_path: Path, change: dict[str, object]) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(ConfigError, match=r"outside|format 2"):
        restore(copy, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not empty"):
        restore(copy, tmp_path / "data")
    with pytest.raises(ConfigError, match="not empty"):
        backup_stopped(tmp_path / "data", copy)
    with pytest.raises(ConfigError, match="lies in the data directory"):
        backup_stopped(tmp_path / "data", tmp_path / "data" / "copy")

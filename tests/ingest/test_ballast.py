"""Room for dropping data is let go once the disk is full."""

from pathlib import Path
from typing import Any

import pytest

from tailtrace.errors import StoreError
from tailtrace.ingest import ballast
from tailtrace.ingest.ballast import Ballast
from tailtrace.ingest.retention import enforce
from tailtrace.ingest.settings import ServerSettings

FULL = StoreError("Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)")


class FullStore:
    """One old partition, which can be dropped only once the ballast is gone."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.dropped: list[str] = []

    def query(self, sql: str, parameters: Any = None, **_: Any) -> list[dict[str, Any]]:
        wanted = "otel_traces" in parameters["tables"] and not self.dropped
        part = {"table": "otel_traces", "partition": "20200101", "name": "20200101_1_1_0", "bytes": 5}
        return [part] if wanted else []

    def command(self, statement: str, *_: Any, **__: Any) -> None:
        if (self._data / "ballast").exists():
            raise FULL
        self.dropped.append(statement)


def test_a_full_disk_is_freed_with_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ballast, "BYTES", 4096)
    settings = ServerSettings(data=tmp_path, retention_days=1)
    Ballast(tmp_path).keep()
    store = FullStore(tmp_path)
    assert enforce(store, settings).dropped == 1  # type: ignore[arg-type]
    assert store.dropped == ["ALTER TABLE otel_traces DROP PARTITION ID '20200101'"]
    assert (tmp_path / "ballast").stat().st_size == 4096  # kept again, for the next time


def test_without_room_none_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ballast.os, "posix_fallocate", full)
    Ballast(tmp_path).keep()
    assert not (tmp_path / "ballast").exists()
    assert not Ballast(tmp_path).release()

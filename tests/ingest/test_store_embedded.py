"""The embedded store: the contract, and what comes with owning a directory and living in a process."""

import os
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from store_contract import StoreContract

from tailtrace.errors import ConfigError, StoreDead, StoreError, StoreLocked
from tailtrace.ingest.store import Store
from tailtrace.ingest.store.embedded import EmbeddedStore
from tailtrace.ingest.store.lock import DirectoryLock


class TestEmbedded(StoreContract):
    """Runs the kit on the fixture `store`."""


def test_a_second_owner_is_refused_with_path_and_pid(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    code = (
        "import sys, pathlib; from tailtrace.ingest.store.lock import DirectoryLock\n"
        "DirectoryLock(pathlib.Path(sys.argv[1]))"
    )
    second = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
    )
    assert second.returncode == 1
    assert f"{tmp_path} is in use by another process (pid {os.getpid()})" in second.stderr
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_lock_is_refused_within_this_process_too(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        DirectoryLock(tmp_path)
    lock.release()


def test_a_forked_child_is_told_what_to_do(store: Store) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.query("SELECT 1")
        except StoreDead as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 10_000).decode()
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert "forked" in said
    assert "TAILTRACE_CLICKHOUSE_URL" in said


def test_a_path_with_a_question_mark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="question mark"):
        EmbeddedStore(tmp_path / "what?", memory_bytes=1_000_000_000)


def test_a_running_query_can_be_cancelled(store: Store) -> None:
    started = threading.Event()
    outcome: list[str] = []

    def slow() -> None:
        started.set()
        try:
            store.query("SELECT /* id:slow-1 */ count() FROM numbers(1000000000000) WHERE sin(number) > 2")
        except StoreError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=slow)
    thread.start()
    started.wait(10)
    while thread.is_alive():
        store.cancel("slow-1")
        thread.join(0.1)
    assert "Code: 394" in outcome[0]


def test_nothing_is_written_into_the_working_directory(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tailtrace.ingest.settings import ServerSettings\n"
        "from tailtrace.ingest.store import open_store; from bodies import trace_body\n"
        "from store_contract import segment\n"
        "store = open_store(ServerSettings(data=Path(sys.argv[1])))\n"
        "store.insert_segment('traces', segment(Path(sys.argv[1]) / 'x.otlp', trace_body(3)), 'x')\n"
        "print(store.query('SELECT count() AS n FROM otel_traces')[0]['n'])\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TZ": "America/New_York"}
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("3\n", 0), run.stderr
    assert list(work.iterdir()) == []


def test_an_insert_that_fails_behind_the_parser_raises(store: Store) -> None:
    """The engine's streaming insert answers such a failure with success."""
    columns = "A UInt64, B UInt64 MATERIALIZED throwIf(A = 7)"
    store.command(f"CREATE TABLE IF NOT EXISTS fails ({columns}) ENGINE = MergeTree ORDER BY A")
    try:
        with pytest.raises(StoreError):
            store.insert_arrow("fails", pa.table({"A": pa.array(range(10), pa.uint64())}))
        store.insert_arrow("fails", pa.table({"A": pa.array([1], pa.uint64())}))
        assert store.query("SELECT count() AS n FROM fails") == [{"n": 1}]
    finally:
        store.command("DROP TABLE fails")


def test_a_disk_without_room_for_what_is_to_be_inserted_is_an_error_of_the_store(store: Store) -> None:
    """Not an OSError, which callers that try again do not expect; and nothing of it is left."""
    store.command("CREATE TABLE IF NOT EXISTS scratched (A UInt64) ENGINE = MergeTree ORDER BY A")
    rows = pa.table({"A": pa.array(range(100_000), pa.uint64())})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        with pytest.raises(StoreError, match="cannot be written to") as caught:
            store.insert_arrow("scratched", rows)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        (scratch,) = re.findall(r"written to (\S+):", str(caught.value))
        assert list(Path(scratch).iterdir()) == []
        store.insert_arrow("scratched", rows)
        assert store.query("SELECT count() AS n FROM scratched") == [{"n": 100_000}]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        store.command("DROP TABLE scratched")


def test_a_full_disk_does_not_keep_the_lock_from_being_taken(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        lock = DirectoryLock(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(StoreLocked):
        DirectoryLock(tmp_path)
    lock.release()

"""From a submitted body to a stored one."""

import threading
import time
from concurrent.futures import wait
from pathlib import Path

import pytest
from bodies import trace_body
from fake_store import FakeStore

from tailtrace.errors import Overloaded
from tailtrace.ingest import pipeline as module
from tailtrace.ingest.pipeline import Pipeline
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store


def pipeline_of(store: object, directory: Path, **settings: object) -> Pipeline:
    options = {"data": directory, "min_free_bytes": 0, **settings}
    return Pipeline(store, directory / "journal", ServerSettings(**options))  # type: ignore[arg-type]


def journal_files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "journal").rglob("*.otlp"))


def test_bodies_become_spans(store: Store, tmp_path: Path) -> None:
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    futures = [pipeline.submit("traces", trace_body(3), 3) for _ in range(10)]
    done, _ = wait(futures, timeout=30)
    assert len(done) == 10
    pipeline.flush()
    assert store.query("SELECT count() AS n, uniqExact(TraceId) AS t FROM otel_traces") == [{"n": 30, "t": 10}]
    counters = pipeline.counters()
    assert (counters["accepted_items"], counters["stored_items"], counters["journal_bytes"]) == (30, 30, 0)
    pipeline.stop()
    assert journal_files(tmp_path) == []


def test_a_done_future_means_that_the_body_is_in_the_journal(tmp_path: Path) -> None:
    store = FakeStore()
    store.error = "away"
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    pipeline.submit("traces", b"body", 1).result(10)
    (path,) = (tmp_path / "journal" / "traces").glob("*.otlp")
    assert path.read_bytes() == b"\x04body"
    pipeline.stop(0.1)


def test_a_repeated_body_is_acknowledged_and_stored_once(tmp_path: Path) -> None:
    store = FakeStore()
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    for future in [pipeline.submit("traces", b"body", 1) for _ in range(5)]:
        future.result(10)
    pipeline.flush()
    pipeline.submit("traces", b"body", 1).result(10)
    pipeline.stop()
    again = pipeline_of(store, tmp_path)
    again.start()
    again.submit("traces", b"body", 1).result(10)
    again.stop()
    assert store.bodies == [b"body"]
    assert pipeline.counters()["repeated_bodies"] == 5


def test_what_was_not_stored_is_stored_first_at_the_next_start(tmp_path: Path) -> None:
    store = FakeStore()
    store.error = "away"
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    for n in range(5):
        pipeline.submit("traces", b"old %d" % n, 1).result(10)
    pipeline.stop(0.1)
    assert journal_files(tmp_path) != []
    store.error = None
    again = pipeline_of(store, tmp_path)
    again.start()
    assert store.bodies == [b"old %d" % n for n in range(5)]
    again.submit("traces", b"new", 1).result(10)
    again.stop()
    assert store.bodies[-1] == b"new"
    assert journal_files(tmp_path) == []


def test_many_senders_keep_their_order_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_ITEMS", 20)
    monkeypatch.setattr(module, "FULL_SEGMENT_ITEMS", 40)
    store = FakeStore()
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()

    def send(sender: int) -> None:
        for n in range(200):
            pipeline.submit("traces", b"%d-%d" % (sender, n), 1).result(30)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipeline.flush()
    pipeline.stop()
    for sender in range(8):
        mine = [body for body in store.bodies if body.startswith(b"%d-" % sender)]
        assert mine == [b"%d-%d" % (sender, n) for n in range(200)]


def test_a_full_journal_says_so_and_takes_bodies_again_later(tmp_path: Path) -> None:
    store = FakeStore()
    store.error = "away"
    pipeline = pipeline_of(store, tmp_path, journal_max_bytes=100)
    pipeline.start()
    pipeline.submit("traces", b"x" * 60, 1).result(10)
    with pytest.raises(Overloaded, match="the store is behind") as caught:
        pipeline.submit("traces", b"y" * 60, 1)
    assert caught.value.retry_after_s > 0
    assert pipeline.counters()["overloaded_bodies"] == 1
    store.error = None
    pipeline.flush()
    pipeline.submit("traces", b"y" * 60, 1).result(10)
    pipeline.stop()
    assert store.bodies == [b"x" * 60, b"y" * 60]


def test_a_nearly_full_disk_says_so(tmp_path: Path) -> None:
    pipeline = pipeline_of(FakeStore(), tmp_path, min_free_bytes=1 << 60)
    pipeline.start()
    with pytest.raises(Overloaded, match="the disk is nearly full"):
        pipeline.submit("traces", b"body", 1)
    pipeline.stop()


def test_a_journal_that_cannot_be_written_fails_the_sender_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FakeStore()
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()

    def broken(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tailtrace.ingest.journal.os.fdatasync", broken)
        with pytest.raises(Overloaded, match="No space left"):
            pipeline.submit("traces", b"body", 1).result(10)
    pipeline.submit("traces", b"body", 1).result(10)
    pipeline.flush()
    pipeline.stop()
    assert store.bodies == [b"body"]
    assert pipeline.counters()["journal_bytes"] == 0


def test_an_empty_body_is_acknowledged_and_not_kept(tmp_path: Path) -> None:
    pipeline = pipeline_of(FakeStore(), tmp_path)
    pipeline.start()
    pipeline.submit("traces", b"", 0).result(10)
    pipeline.stop()
    assert pipeline.counters()["accepted_bodies"] == 0


def test_nothing_is_taken_before_start_or_after_stop(tmp_path: Path) -> None:
    pipeline = pipeline_of(FakeStore(), tmp_path)
    with pytest.raises(Overloaded):
        pipeline.submit("traces", b"body", 1)
    pipeline.start()
    pipeline.stop()
    with pytest.raises(Overloaded):
        pipeline.submit("traces", b"body", 1)


def test_flush_says_why_it_gave_up(tmp_path: Path) -> None:
    store = FakeStore()
    store.error = "nobody home"
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    pipeline.submit("traces", b"body", 1)
    with pytest.raises(TimeoutError, match="nobody home"):
        pipeline.flush(1.0)
    pipeline.stop(0.1)


def test_many_small_bodies_make_few_segments(tmp_path: Path) -> None:
    store = FakeStore()
    now = [0.0]
    pipeline = Pipeline(
        store, tmp_path / "journal", ServerSettings(data=tmp_path, min_free_bytes=0), clock=lambda: now[0]
    )  # type: ignore[arg-type]
    pipeline.start()
    pipeline.submit("traces", b"first", 1).result(10)
    deadline = time.monotonic() + 10
    while not store.bodies and time.monotonic() < deadline:
        time.sleep(0.001)
    for n in range(500):
        pipeline.submit("traces", b"%d" % n, 1).result(10)
    pipeline.flush()
    pipeline.stop()
    assert len(store.bodies) == 501
    assert len(store.tokens) == 2


def test_a_repeat_is_known_for_as_long_as_its_body_waits(tmp_path: Path) -> None:
    store = FakeStore()
    store.error = "away for longer than senders retry"
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    pipeline.submit("traces", b"body", 1).result(10)
    for lane in pipeline._lanes.values():
        lane.recent._time = lambda: time.time() + 3_600
        lane.recent.add([])
    pipeline.submit("traces", b"body", 1).result(10)
    store.error = None
    pipeline.flush()
    pipeline.stop()
    assert store.bodies == [b"body"]


def test_the_journal_thread_outlives_what_nobody_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeStore()
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    with monkeypatch.context() as patch:
        patch.setattr("tailtrace.ingest.journal.frame", lambda body: 1 / 0)
        with pytest.raises(Overloaded, match="division by zero"):
            pipeline.submit("traces", b"body", 1).result(10)
    pipeline.submit("traces", b"body", 1).result(10)
    pipeline.flush()
    pipeline.stop()
    assert store.bodies == [b"body"]


def test_a_folder_that_cannot_be_tidied_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeStore()
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()

    def broken(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("tailtrace.ingest.journal.Segment.remove", broken)
        pipeline.submit("traces", b"one", 1).result(10)
        pipeline.flush()
    pipeline.submit("traces", b"two", 1).result(10)
    pipeline.flush()
    pipeline.stop()
    assert store.bodies == [b"one", b"two"]


class HeldStore(FakeStore):
    """Inserts wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def insert_segment(self, signal: str, path: Path, token: str) -> None:
        self.tried.set()
        self.go.wait(10)
        super().insert_segment(signal, path, token)


def test_senders_go_at_the_pace_of_a_store_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_SEGMENT_ITEMS", 10)
    monkeypatch.setattr(module, "_PACE_LIMIT_S", 60.0)
    store = HeldStore()
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    for n in range(2):  # one is being inserted, a full one waits behind it
        pipeline.submit("traces", b"full %d" % n, 10).result(10)
    assert store.tried.wait(10)
    held = pipeline.submit("traces", b"held", 1)
    assert wait([held], timeout=0.3).not_done == {held}
    store.go.set()
    held.result(10)
    pipeline.stop()
    assert store.bodies == [b"full 0", b"full 1", b"held"]


def test_a_store_that_stands_still_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_SEGMENT_ITEMS", 10)
    monkeypatch.setattr(module, "_PACE_LIMIT_S", 0.1)
    store = HeldStore()
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    for n in range(5):
        pipeline.submit("traces", b"full %d" % n, 10).result(10)
    assert store.bodies == []
    store.go.set()
    pipeline.stop()
    assert len(store.bodies) == 5


def leave_one_behind(store: FakeStore, tmp_path: Path) -> None:
    """A journal that ends with one body that this store has refused."""
    before = pipeline_of(store, tmp_path)
    before.start()
    before.submit("traces", b"kept", 1).result(10)
    before.stop(0.1)


def test_a_start_does_not_wait_for_a_store_that_keeps_failing(tmp_path: Path) -> None:
    """As on a full disk: pages and answers are wanted there more than anywhere."""
    store = FakeStore()
    store.error = "Code: 243. DB::Exception: Cannot reserve 5.05 MiB, not enough space. (NOT_ENOUGH_SPACE)"
    leave_one_behind(store, tmp_path)
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start(recovery_wait_s=3600.0)
    assert pipeline.counters()["journal_bodies"] == 1
    store.error = None
    pipeline.flush()
    pipeline.stop()
    assert store.bodies == [b"kept"]


def test_a_start_waits_for_what_is_stored_meanwhile(tmp_path: Path) -> None:
    store = FakeStore()
    store.error = "away"
    leave_one_behind(store, tmp_path)
    store.error = None
    pipeline = pipeline_of(store, tmp_path)
    pipeline.start()
    assert store.bodies == [b"kept"]
    pipeline.stop()

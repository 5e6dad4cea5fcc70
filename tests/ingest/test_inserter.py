"""Segments reach the store in order, whatever the store says."""

import time
from pathlib import Path

import pytest
from fake_store import FakeStore

from tailtrace.errors import StoreError
from tailtrace.ingest.inserter import Inserter, blames_content
from tailtrace.ingest.journal import Journal, Segment


def journal_of(directory: Path, *segments: list[bytes]) -> list[Segment]:
    journal = Journal(directory / "traces", "traces")
    sealed = []
    for bodies in segments:
        journal.append(bodies, len(bodies))
        segment = journal.seal()
        assert segment is not None
        sealed.append(segment)
    return sealed


def drain(store: FakeStore, directory: Path, segments: list[Segment]) -> tuple[Inserter, list[str]]:
    done: list[str] = []
    inserter = Inserter(store, directory / "refused", lambda segment: done.append(segment.id))  # type: ignore[arg-type]
    for segment in segments:
        inserter.put(segment)
    inserter.start("test")
    inserter.stop(30)
    return inserter, done


def test_segments_are_stored_in_order_under_their_own_ids(tmp_path: Path) -> None:
    store = FakeStore()
    segments = journal_of(tmp_path, [b"a", b"b"], [b"c"])
    _, done = drain(store, tmp_path, segments)
    assert store.bodies == [b"a", b"b", b"c"]
    assert store.tokens == done == [segment.id for segment in segments]


@pytest.mark.parametrize("bad", [[0], [6], [2, 3], [0, 1, 2, 3, 4, 5, 6]])
def test_a_bad_body_is_put_aside_and_the_rest_stored(tmp_path: Path, bad: list[int]) -> None:
    store = FakeStore()
    bodies = [b"body %d" % n for n in range(7)]
    store.refuse = {bodies[n] for n in bad}
    inserter, done = drain(store, tmp_path, journal_of(tmp_path, bodies, [b"next"]))
    assert store.bodies == [*(body for n, body in enumerate(bodies) if n not in bad), b"next"]
    assert len(done) == 2
    assert inserter.refused_bodies == len(bad)
    assert {path.read_bytes() for path in (tmp_path / "refused").iterdir()} == store.refuse


def test_taking_a_segment_apart_twice_stores_it_once(tmp_path: Path) -> None:
    store = FakeStore()
    bodies = [b"body %d" % n for n in range(5)]
    store.refuse = {bodies[3]}
    segments = journal_of(tmp_path, bodies)
    drain(store, tmp_path, segments)
    drain(store, tmp_path, segments)
    assert store.bodies == [bodies[0], bodies[1], bodies[2], bodies[4]]


@pytest.mark.parametrize("error", ["connection refused", "memory. (MEMORY_LIMIT_EXCEEDED)", "full. (TOO_MANY_PARTS)"])
def test_a_store_that_is_away_is_waited_for(tmp_path: Path, error: str) -> None:
    store = FakeStore()
    store.error = error
    done: list[str] = []
    inserter = Inserter(store, tmp_path / "refused", lambda segment: done.append(segment.id))  # type: ignore[arg-type]
    for segment in journal_of(tmp_path, [b"a"], [b"b"]):
        inserter.put(segment)
    inserter.start("test")
    assert store.tried.wait(10)
    assert done == []
    store.error = None
    deadline = time.monotonic() + 30
    while len(done) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    inserter.stop(1)
    assert store.bodies == [b"a", b"b"]
    assert inserter.failures >= 1
    assert inserter.last_error == error


def test_memory_is_blamed_on_the_content_only_in_the_end() -> None:
    error = StoreError("Code: 241. DB::Exception: no memory. (MEMORY_LIMIT_EXCEEDED)")
    assert not blames_content(error, spare_memory=True)
    assert blames_content(error, spare_memory=False)
    assert not blames_content(StoreError("Connection reset"), spare_memory=False)

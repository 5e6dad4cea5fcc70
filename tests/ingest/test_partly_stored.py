"""A segment that failed half-way doubles nothing when it is taken apart."""

import os
from pathlib import Path

from bodies import trace_body

from tailtrace.errors import StoreError
from tailtrace.ingest.inserter import Inserter
from tailtrace.ingest.journal import Journal
from tailtrace.ingest.partly_stored import without_stored_spans
from tailtrace.ingest.store import Signal, Store

COUNT = "SELECT count() AS n, uniqExact(TraceId) AS t FROM otel_traces"


class HalfDone:
    """A store whose first insert stores everything and then fails as if a later view had refused the content."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failures = 1

    def insert_segment(self, signal: Signal, path: Path, token: str) -> None:
        self._store.insert_segment(signal, path, token)
        if self._failures:
            self._failures -= 1
            raise StoreError("Code: 407. DB::Exception: overflow in a view. (DECIMAL_OVERFLOW)")

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def insert(store: Store, folder: Path, *bodies: bytes) -> None:
    folder.mkdir()
    journal = Journal(folder, "traces")
    journal.append(list(bodies), len(bodies))
    segment = journal.seal()
    assert segment is not None
    store.insert_segment("traces", segment.path, segment.id)


def test_a_half_done_segment_is_taken_apart_without_doubling(store: Store, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "traces", "traces")
    journal.append([trace_body(3) for _ in range(5)], 15)
    segment = journal.seal()
    assert segment is not None
    inserter = Inserter(HalfDone(store), tmp_path / "refused", lambda _: None)  # type: ignore[arg-type]
    inserter.put(segment)
    inserter.start("test")
    inserter.stop(30)
    assert store.query(COUNT) == [{"n": 15, "t": 5}]


def test_only_spans_that_are_stored_are_cut_out(store: Store, tmp_path: Path) -> None:
    known, new = trace_body(2), trace_body(2, trace_id=os.urandom(16))
    insert(store, tmp_path / "first", known)
    left = without_stored_spans(store, [new, known, known + new, b"no protobuf"])
    assert left[0] == new
    assert left[3] == b"no protobuf"
    insert(store, tmp_path / "second", left[1], left[2])
    assert store.query(COUNT) == [{"n": 4, "t": 2}]

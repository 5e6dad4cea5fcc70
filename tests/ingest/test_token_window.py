"""A segment whose token the engine may have forgotten is compared with what is stored."""

from pathlib import Path

import pytest
from bodies import trace_body

from tailtrace.ingest.inserter import Inserter
from tailtrace.ingest.journal import Journal, Segment
from tailtrace.ingest.store import Store
from tailtrace.ingest.token_window import TokenWindow

COUNT = "SELECT count() AS n, uniqExact(TraceId, SpanId) AS spans FROM otel_traces"


def left_over(folder: Path, *bodies: bytes) -> Segment:
    """A segment that an earlier start wrote."""
    Journal(folder, "traces").append(list(bodies), len(bodies))
    (segment,) = Journal(folder, "traces").recover()
    return segment


def insert(store: Store, folder: Path, segment: Segment) -> None:
    inserter = Inserter(store, folder / "refused", lambda _: None)
    inserter.put(segment)
    inserter.start("test")
    inserter.stop(30)
    assert inserter.failures == 0


@pytest.mark.parametrize("stored", [1, 2, 3])
def test_spans_of_a_forgotten_token_are_stored_once(store: Store, tmp_path: Path, stored: int) -> None:
    bodies = [trace_body(4) for _ in range(3)]
    segment = left_over(tmp_path / "traces", *bodies)
    before = left_over(tmp_path / "before", *bodies[:stored])
    store.insert_segment("traces", before.path, f"forgotten-{segment.id}")
    (segment.path.parent / "inserts").write_text("-100000")
    insert(store, tmp_path, segment)
    assert store.query(COUNT) == [{"n": 12, "spans": 12}]


def test_a_token_that_is_known_mends_what_a_kill_left_undone(store: Store, tmp_path: Path) -> None:
    segment = left_over(tmp_path / "traces", trace_body(4))
    store.insert_segment("traces", segment.path, segment.id)
    TokenWindow(store).note(segment.path.parent)
    insert(store, tmp_path, segment)
    assert store.query(COUNT) == [{"n": 4, "spans": 4}]


def test_tables_made_anew_know_no_token(store: Store, tmp_path: Path) -> None:
    (tmp_path / "inserts").write_text("5000000")
    assert not TokenWindow(store).holds(tmp_path)
    (tmp_path / "inserts").write_text("no number")
    assert TokenWindow(store).holds(tmp_path)


def test_the_count_is_noted_once_a_minute(store: Store, tmp_path: Path) -> None:
    now = 0.0
    window = TokenWindow(store, lambda: now)
    window.note(tmp_path)
    (tmp_path / "inserts").unlink()
    now = 59.0
    window.note(tmp_path)
    assert not (tmp_path / "inserts").exists()
    now = 61.0
    window.note(tmp_path)
    assert (tmp_path / "inserts").read_text().isdigit()

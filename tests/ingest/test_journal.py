"""The journal: what is in it after whatever happened."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrace.ingest.framing import frame, read_bodies
from tailtrace.ingest.journal import Journal


def test_a_frame_is_a_protobuf_varint() -> None:
    assert [frame(b"x" * n) for n in (0, 1, 127, 128, 300)] == [b"\x00", b"\x01", b"\x7f", b"\x80\x01", b"\xac\x02"]


@settings(max_examples=60, deadline=None)
@given(bodies=st.lists(st.binary(max_size=400), max_size=8), cut=st.integers(0, 3_000))
def test_a_torn_file_keeps_its_whole_bodies(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], cut: int
) -> None:
    data = b"".join(frame(body) + body for body in bodies)[:cut]
    path = tmp_path_factory.mktemp("torn") / "segment"
    path.write_bytes(data)
    whole, size = [], 0
    for body in bodies:
        size += len(frame(body)) + len(body)
        if size <= len(data):
            whole.append(body)
    assert list(read_bodies(path)) == whole


def test_what_was_appended_is_recovered_in_order(tmp_path: Path) -> None:
    first = Journal(tmp_path, "traces")
    first.append([b"one", b"two"], 2)
    first.seal()
    first.append([b"three"], 1)
    second = Journal(tmp_path, "traces")
    recovered = second.recover()
    assert [list(read_bodies(segment.path)) for segment in recovered] == [[b"one", b"two"], [b"three"]]
    assert [(segment.bodies, segment.bytes) for segment in recovered] == [(2, 8), (1, 6)]
    assert second.recover() == []


def test_a_torn_last_record_is_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "traces")
    journal.append([b"whole"], 1)
    segment = journal.seal()
    assert segment is not None
    with segment.path.open("ab") as file:
        file.write(frame(b"x" * 100) + b"torn")
    (recovered,) = Journal(tmp_path, "traces").recover()
    assert recovered.path.read_bytes() == frame(b"whole") + b"whole"


def test_segments_without_a_whole_body_are_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "traces")
    journal.append([b"gone"], 1)
    segment = journal.seal()
    assert segment is not None
    os.truncate(segment.path, 3)
    assert Journal(tmp_path, "traces").recover() == []
    assert list(tmp_path.iterdir()) == []


def test_ids_are_never_reused(tmp_path: Path) -> None:
    ids = []
    for _ in range(3):
        journal = Journal(tmp_path, "traces")
        for _ in range(3):
            journal.append([b"body"], 1)
            segment = journal.seal()
            assert segment is not None
            ids.append(segment.id)
            segment.remove()
    assert len(set(ids)) == 9


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, "traces")
    journal.append([b"kept"], 1)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(OSError, match="No space left"):
            journal.append([b"lost"], 1)
    journal.append([b"later"], 1)
    segment = journal.seal()
    assert segment is not None
    assert list(read_bodies(segment.path)) == [b"kept", b"later"]
    assert (segment.bodies, segment.items) == (2, 2)


def test_half_a_record_that_could_not_be_cut_is_cut_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, "traces")
    journal.append([b"first"], 1)

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("tailtrace.ingest.journal.os.fdatasync", broken)
        patch.setattr("tailtrace.ingest.journal.os.ftruncate", broken)
        with pytest.raises(OSError, match="Input/output"):
            journal.append([b"never acknowledged"], 1)
    journal.append([b"second"], 1)
    segment = journal.seal()
    assert segment is not None
    assert segment.path.read_bytes() == b"\x05first\x06second"


def test_nothing_is_acknowledged_in_a_file_whose_name_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, "traces")

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("tailtrace.ingest.journal.os.fsync", broken)
        for _ in range(2):  # also at the second try
            with pytest.raises(OSError, match="Input/output"):
                journal.append([b"lost"], 1)
    assert list(tmp_path.iterdir()) == []
    journal.append([b"kept"], 1)
    segment = journal.seal()
    assert segment is not None
    assert list(read_bodies(segment.path)) == [b"kept"]

"""Retries of senders are told from new bodies."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailtrace.ingest.deliveries import WINDOW_S, RecentDeliveries, digest


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_body_is_known_for_ten_minutes(tmp_path: Path) -> None:
    clock = Clock()
    recent = RecentDeliveries(tmp_path / "delivered", clock)
    recent.add([digest(b"a")])
    clock.now += WINDOW_S
    recent.add([digest(b"b")])
    assert digest(b"a") in recent
    clock.now += 1
    recent.add([digest(b"c")])
    assert digest(b"a") not in recent
    assert digest(b"b") in recent


def test_stored_bodies_are_known_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "delivered"
    recent = RecentDeliveries(path, clock)
    recent.keep([digest(b"a")])
    with path.open("ab") as file:
        file.write(b"torn")
    assert digest(b"a") in RecentDeliveries(path, clock)
    clock.now += WINDOW_S + 1
    assert digest(b"a") not in RecentDeliveries(path, clock)
    assert path.stat().st_size == 0


@pytest.fixture
def room() -> Iterator[Callable[[int], None]]:
    """Limits the size of files, so that what is written beyond it is cut as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_half_a_record_of_a_full_disk_does_not_spoil_those_behind_it(
    tmp_path: Path, room: Callable[[int], None]
) -> None:
    path = tmp_path / "delivered"
    recent = RecentDeliveries(path)
    recent.keep([digest(b"a")])
    room(50)
    with pytest.raises(OSError, match="No space"):
        recent.keep([digest(b"b"), digest(b"c")])
    room(1 << 20)
    recent.keep([digest(b"d")])
    again = RecentDeliveries(path)
    assert digest(b"a") in again
    assert digest(b"d") in again


def test_a_full_disk_does_not_keep_it_from_being_read(tmp_path: Path, room: Callable[[int], None]) -> None:
    path = tmp_path / "delivered"
    RecentDeliveries(path).keep([digest(b"a")])
    with path.open("ab") as file:
        file.write(b"torn")
    room(0)
    assert digest(b"a") in RecentDeliveries(path)
    room(1 << 20)
    RecentDeliveries(path).keep([digest(b"b")])
    assert digest(b"b") in RecentDeliveries(path)

"""Retries of senders are told from new bodies."""

from pathlib import Path

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

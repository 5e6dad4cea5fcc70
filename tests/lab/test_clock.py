from __future__ import annotations

from tailtrace.lab.clock import VirtualClock


def test_events_run_in_order_of_time_and_ties_in_order_of_asking() -> None:
    clock, seen = VirtualClock(), []
    clock.at(30, lambda: seen.append((clock.now_ns(), "late")))
    clock.at(10, lambda: seen.append((clock.now_ns(), "first")))
    clock.at(10, lambda: seen.append((clock.now_ns(), "second")))
    clock.run(20)
    assert seen == [(10, "first"), (10, "second")]
    assert clock.now_ns() == 20
    clock.run(30)
    assert seen[-1] == (30, "late")


def test_an_event_may_ask_for_another_inside_the_same_run() -> None:
    clock, seen = VirtualClock(), []
    clock.at(5, lambda: clock.at(7, seen.append, "nested"))
    clock.run(10)
    assert seen == ["nested"]

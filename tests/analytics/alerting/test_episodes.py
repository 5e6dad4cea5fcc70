"""The life of an alert."""

from __future__ import annotations

from dataclasses import replace

from tailtrace.analytics.alerting.episodes import Episode, Event, Signal, step

MINUTE = 60_000
T0 = 1_790_000_000_000


def play(firing: list[bool], *, every_ms: int = MINUTE) -> tuple[Episode | None, list[Event]]:
    episode, events = None, []
    for number, on in enumerate(firing):
        now = T0 + number * every_ms
        episode, event = step(episode, Signal("r", "c", on, now, now, None if on else now), now)
        events += [event] if event else []
    return episode, events


def test_told_once_while_it_lasts_and_once_when_over() -> None:
    episode, events = play([True] * 30 + [False] * 30)
    assert events == ["firing", "resolved"]
    assert episode is not None
    assert episode.state == "resolved"
    assert episode.ended_ms == T0 + 30 * MINUTE


def test_flapping_is_said_once() -> None:
    _, events = play([True, False] * 60)
    assert events.count("flapping") == 1
    assert events[-1] == "flapping"
    assert len(events) == 7


def test_calm_for_an_hour_ends_flapping() -> None:
    _, events = play([True, False] * 10 + [False] * 70 + [True])
    assert events[-1] == "firing"


def test_muted_episodes_go_on_in_silence() -> None:
    opened, _ = step(None, Signal("r", "c", True, T0, T0), T0)
    assert opened is not None
    muted = replace(opened, muted_ms=T0 + 10 * MINUTE)
    ended, event = step(muted, Signal("r", "c", False, T0, T0, T0), T0 + MINUTE)
    assert event is None
    assert ended is not None
    assert ended.state == "resolved"
    again, event = step(ended, Signal("r", "c", True, T0, T0), T0 + 20 * MINUTE)
    assert event == "firing"
    assert again is not None


def test_acknowledged_stays_so_until_it_is_over() -> None:
    opened, _ = step(None, Signal("r", "c", True, T0, T0), T0)
    assert opened is not None
    known = replace(opened, state="acknowledged")
    assert step(known, Signal("r", "c", True, T0, T0), T0 + MINUTE) == (known, None)
    _, event = step(known, Signal("r", "c", False, T0, T0, T0), T0 + MINUTE)
    assert event == "resolved"


def test_what_is_long_past_is_shown_and_not_sent() -> None:
    day = 24 * 60 * MINUTE
    episode, event = step(None, Signal("r", "c", True, T0, T0), T0 + day)
    assert (episode is not None, event) == (True, None)
    episode, event = step(None, Signal("r", "c", False, T0, T0, T0 + MINUTE), T0 + 2 * MINUTE)
    assert episode is not None
    assert (episode.state, event) == ("resolved", None)
    assert step(None, Signal("r", "c", False, T0, T0), T0) == (None, None)

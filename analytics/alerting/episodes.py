"""The life of an alert as a pure step: an episode, what is true now, what follows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

Event = Literal["firing", "resolved", "flapping"]
HOUR_MS: Final = 3_600_000
FLAPS: Final = 3
"""Re-opened this often within an hour of its last end, an episode is flapping: said once, then quiet."""
OLD_MS: Final = 24 * HOUR_MS
"""What began and was confirmed longer ago than this is shown, not sent: recordings of last month are no news."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A rule's word about one cause: whether it holds, since when, until when, and what a message would say."""

    rule: str
    cause: str
    firing: bool
    since_ms: int
    known_ms: int
    until_ms: int | None = None
    summary: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Episode:
    """One stored alert. `revision` counts its changes."""

    id: str
    rule: str
    cause: str
    state: str
    opened_ms: int
    ended_ms: int | None = None
    muted_ms: int | None = None
    reopened: int = 0
    flapping: bool = False
    summary: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 1

    def is_muted(self, now_ms: int) -> bool:
        return self.muted_ms is not None and self.muted_ms > now_ms


def episode_id(rule: str, cause: str) -> str:
    return hashlib.blake2b(f"{rule}\x1f{cause}".encode(), digest_size=8).hexdigest()


def step(episode: Episode | None, signal: Signal, now_ms: int) -> tuple[Episode | None, Event | None]:
    """The episode after a signal (None: there is none), and the event to tell. Repeating a signal changes nothing."""
    if episode is None:
        return _opened(signal, now_ms)
    if signal.firing:
        return _still(episode, signal, now_ms) if episode.state != "resolved" else _again(episode, signal, now_ms)
    if episode.state == "resolved":
        return episode, None
    return over(episode, signal.until_ms or now_ms, now_ms, str(signal.body.get("outcome", "")))


def over(episode: Episode, ended_ms: int, now_ms: int, outcome: str) -> tuple[Episode, Event | None]:
    """The episode at its end. `outcome` says how it came to it, where that is more than that it is over."""
    body = {**episode.body, "outcome": outcome} if outcome else episode.body
    ended = replace(episode, state="resolved", ended_ms=ended_ms, body=body, revision=episode.revision + 1)
    return ended, None if episode.flapping or episode.is_muted(now_ms) else "resolved"


def _opened(signal: Signal, now_ms: int) -> tuple[Episode | None, Event | None]:
    if not signal.firing and signal.until_ms is None:
        return None, None
    made = Episode(
        episode_id(signal.rule, signal.cause), signal.rule, signal.cause, "open" if signal.firing else "resolved",
        signal.since_ms, None if signal.firing else signal.until_ms, summary=signal.summary, body=signal.body,
    )  # fmt: skip
    news = signal.firing and now_ms - signal.known_ms < OLD_MS
    return made, "firing" if news else None


def _still(episode: Episode, signal: Signal, now_ms: int) -> tuple[Episode, Event | None]:
    """What is known of it may grow; nobody is told again. When a mute runs out, who was not told yet is told now: a
    message that was put into the outbox before is not put in twice.
    """
    if episode.muted_ms is not None and not episode.is_muted(now_ms):
        awake = replace(episode, muted_ms=None, revision=episode.revision + 1)
        return awake, None if episode.flapping else "firing"
    if dict(signal.body) == dict(episode.body) or not signal.body:
        return episode, None
    return replace(episode, body=signal.body, summary=signal.summary, revision=episode.revision + 1), None


def _again(episode: Episode, signal: Signal, now_ms: int) -> tuple[Episode, Event | None]:
    recent = episode.ended_ms is not None and now_ms - episode.ended_ms < HOUR_MS
    count = episode.reopened + 1
    flapping = recent and (episode.flapping or count % (FLAPS + 1) == FLAPS)
    opened = replace(
        episode, state="open", ended_ms=None, reopened=count, flapping=flapping, summary=signal.summary,
        body=signal.body, revision=episode.revision + 1,
    )  # fmt: skip
    if episode.is_muted(now_ms) or (flapping and episode.flapping):
        return opened, None
    return opened, "flapping" if flapping else "firing"

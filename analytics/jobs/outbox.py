"""The outbox: messages that are put in once, and sent until they are delivered, refused for good, or given up.

A message's id follows from what it says, so putting it in twice is putting it in once. A sender claims an attempt
before it makes it; a claim that nobody finished is taken over after a minute, and the receiver knows the message by its
id. So a message comes at least once, and twice only where a sender died between sending and saying so.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
import pyarrow as pa

from tailtrace.analytics.alerting.channels import Sent, send
from tailtrace.analytics.alerting.rules import Channel
from tailtrace.ingest.store import Store

log = logging.getLogger(__name__)

Send = Callable[[Channel, str, Mapping[str, Any]], Sent]
MAX_ATTEMPTS: Final = 12
FIRST_WAIT_MS: Final = 10_000
LONGEST_WAIT_MS: Final = 3_600_000
LEASE_MS: Final = 60_000
_WORKER: Final = uuid.uuid4().hex

_SELECT: Final = """
SELECT Id AS id, Episode AS episode, Event AS event, Channel AS channel, Payload AS payload, State AS state,
  Attempts AS attempts, toInt64(toUnixTimestamp64Milli(NextAt)) AS next_ms, Error AS error,
  toInt64(toUnixTimestamp64Milli(CreatedAt)) AS created_ms, Revision AS revision
FROM outbox FINAL
"""
_DUE: Final = (
    # What lies further ahead than any wait was put off by a clock that has been set back since.
    _SELECT + "WHERE State = 'pending' AND (NextAt <= fromUnixTimestamp64Milli({now:Int64}, 'UTC')"
    " OR NextAt > fromUnixTimestamp64Milli({beyond:Int64}, 'UTC')) ORDER BY CreatedAt, id LIMIT 100"
)
_OF_EPISODES: Final = _SELECT + "WHERE hasAny(splitByChar(',', Episode), {episodes:Array(String)})"
_IDS: Final = "SELECT DISTINCT Id AS id FROM outbox WHERE Id IN {ids:Array(String)}"
_CLAIM: Final = """
SELECT argMin(Worker, At) AS worker, toInt64(toUnixTimestamp64Milli(min(At))) AS at_ms, count() AS n
FROM outbox_claims WHERE Id = {id:String} AND Attempt = {attempt:UInt32}
"""
_STAMP: Final = pa.timestamp("ms", "UTC")
_SCHEMA: Final = pa.schema(
    [
        ("Id", pa.string()), ("Episode", pa.string()), ("Event", pa.string()), ("Channel", pa.string()),
        ("Payload", pa.string()), ("State", pa.string()), ("Attempts", pa.uint32()), ("NextAt", _STAMP),
        ("Error", pa.string()), ("CreatedAt", _STAMP), ("Revision", pa.uint64()),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """One message for one channel. `episode` holds several ids, joined by commas, for a digest."""

    id: str
    episode: str
    event: str
    channel: str
    payload: str
    state: str
    attempts: int
    next_ms: int
    error: str
    created_ms: int
    revision: int = 0


def message_id(episode: str, event: str, turn: int, channel: str) -> str:
    """The idempotency key: of the `turn`-th time that the episode was opened."""
    text = "\x1f".join((episode, event, str(turn), channel))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def put(store: Store, messages: Sequence[Message]) -> int:
    """Put in those that were never in; gives how many."""
    if not messages:
        return 0
    there = {row["id"] for row in store.query(_IDS, {"ids": [each.id for each in messages]}, role="jobs")}
    fresh = [each for each in messages if each.id not in there]
    for each in fresh:
        _write(store, each)
    return len(fresh)


def of_episodes(store: Store, episodes: Sequence[str]) -> list[Message]:
    """Messages about any of the episodes."""
    return [Message(**row) for row in store.query(_OF_EPISODES, {"episodes": list(episodes)}, role="jobs")]


def run_outbox(
    store: Store, channels: Mapping[str, Channel], now_ms: int, *, sender: Send = send, worker: str = _WORKER
) -> int:
    """Send what is due; gives how many were delivered."""
    delivered = 0
    for row in store.query(_DUE, {"now": now_ms, "beyond": now_ms + LONGEST_WAIT_MS}, role="jobs"):
        message = Message(**row)
        wait = _blocked(store, message)
        if wait == "wait":
            continue
        if wait == "skip":
            _write(store, replace(message, state="skipped", revision=message.revision + 1))
            continue
        attempt = _claimed(store, message, now_ms, worker)
        if attempt is None:
            continue
        channel = channels.get(message.channel)
        payload = orjson.loads(message.payload)
        sent = Sent("never", "the channel is gone") if channel is None else sender(channel, message.id, payload)
        delivered += sent.result == "ok"
        _write(store, _after(message, sent, attempt, now_ms))
    return delivered


def _after(message: Message, sent: Sent, attempt: int, now_ms: int) -> Message:
    done = replace(message, attempts=attempt, error=sent.error[:300], revision=message.revision + attempt)
    if sent.result == "ok":
        return replace(done, state="sent", next_ms=now_ms)
    if sent.result == "never" or attempt >= MAX_ATTEMPTS:
        log.warning("an alert could not be sent to channel %s: %s", message.channel, sent.error)
        return replace(done, state="failed")
    wait = min(FIRST_WAIT_MS * 2 ** (attempt - 1), LONGEST_WAIT_MS)
    return replace(done, next_ms=now_ms + wait)


def _blocked(store: Store, message: Message) -> str:
    """An end is told after its beginning, and not at all where the beginning never came."""
    if message.event != "resolved":
        return ""
    before = [
        each
        for each in of_episodes(store, [message.episode])
        if each.channel == message.channel
        and (each.event == "digest" or (each.event == "firing" and _turn(each) == _turn(message)))
        and each.created_ms <= message.created_ms
    ]
    if not before:
        return "skip"
    newest = max(before, key=lambda each: each.created_ms)
    return {"pending": "wait", "sent": ""}.get(newest.state, "skip")


def _turn(message: Message) -> int:
    return int(orjson.loads(message.payload).get("reopened", 0))


def _claimed(store: Store, message: Message, now_ms: int, worker: str) -> int | None:
    """The number of the attempt that this worker has, if it has one."""
    attempt = message.attempts + 1
    while attempt <= message.attempts + MAX_ATTEMPTS:
        row = store.query(_CLAIM, {"id": message.id, "attempt": attempt}, role="jobs")[0]
        if not row["n"]:
            claim = {"Id": [message.id], "Attempt": [attempt], "Worker": [worker], "At": [now_ms]}
            schema = pa.schema([("Id", pa.string()), ("Attempt", pa.uint32()), ("Worker", pa.string()), ("At", _STAMP)])
            token = f"outbox/{message.id}/{attempt}"
            store.insert_arrow("outbox_claims", pa.table(claim, schema=schema), token=token, role="jobs")
            row = store.query(_CLAIM, {"id": message.id, "attempt": attempt}, role="jobs")[0]
            return attempt if row["worker"] == worker else None
        if abs(now_ms - int(row["at_ms"])) < LEASE_MS:
            return None
        attempt += 1
    return None


def _write(store: Store, message: Message) -> None:
    columns = {
        "Id": [message.id], "Episode": [message.episode], "Event": [message.event], "Channel": [message.channel],
        "Payload": [message.payload], "State": [message.state], "Attempts": [message.attempts],
        "NextAt": [message.next_ms], "Error": [message.error], "CreatedAt": [message.created_ms],
        "Revision": [message.revision],
    }  # fmt: skip
    token = f"outbox.row/{message.id}/{message.revision}"
    store.insert_arrow("outbox", pa.table(columns, schema=_SCHEMA), token=token, role="jobs")

"""How far the `requests` job is, as the store remembers it: one state per shard, and a claim before each round.

A round is fixed by its claim (which blocks of the inbox, as of when) before anything is written, and a claim is made
once whoever makes it. So a worker that finds one, its own or another's, alive or dead, comes to the same rows under
the same insert token, and they are stored once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa

from tailtrace.ingest.store import Store

SHARDS: Final = 16
JOB: Final = "requests"

_STATES: Final = """
SELECT Shard, argMax(toUnixTimestamp64Milli(ReceivedUpTo), UpdatedAt) AS upto, argMax(Note, UpdatedAt) AS note
FROM watermarks WHERE Job = {job:String} GROUP BY Shard
"""
_CLAIM: Final = """
SELECT argMin(Note, UpdatedAt) AS note, count() AS n FROM watermarks
WHERE Job = {job:String} AND Note LIKE {pattern:String}
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """Round `round` judges blocks up to `to`, as of `now_ms` of the store's clock.

    apart: its rows and their sums are inserts of their own. summed: both go through `judged`. A round that an earlier
    release began and did not finish must go the way it began, or the store would not know its token again.
    """

    round: int
    to: int
    now_ms: int
    summed: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a shard is.

    All blocks up to `low` are judged, blocks up to `cursor` have been read as of `now_ms`; what lies between belongs to
    traces that had not settled. `since_ms`: the earliest receive time that a later block may hold. `forced`: traces
    judged while still growing, with the block up to which they are (by the second half of their id, in hex).
    """

    round: int = 0
    low: int = 0
    cursor: int = 0
    now_ms: int = 0
    since_ms: int = 0
    upto_ms: int = 0
    forced: Mapping[str, int] = field(default_factory=dict)


def load(store: Store, shards: Sequence[int]) -> list[tuple[Progress, list[int]]]:
    """The states of the shards; shards in the same state, which is the rule, go together."""
    rows = {int(row["Shard"]): row for row in store.query(_STATES, {"job": JOB}, role="jobs")}
    groups: dict[str, list[int]] = {}
    for shard in shards:
        groups.setdefault(str(rows[shard]["note"]) if shard in rows else "", []).append(shard)
    return [(_read(note), members) for note, members in groups.items()]


def _read(note: str) -> Progress:
    return Progress(**json.loads(note)) if note else Progress()


def _write(progress: Progress) -> str:
    return json.dumps(asdict(progress), sort_keys=True)


def _rows(job: str, shards: Sequence[int], upto_ms: int, note: str) -> pa.Table:
    count = len(shards)
    return pa.table(
        {
            "Job": pa.array([job] * count),
            "Shard": pa.array(list(shards), pa.uint8()),
            "ReceivedUpTo": pa.array([upto_ms] * count, pa.timestamp("ms", "UTC")),
            "Note": pa.array([note] * count),
        }
    )


def group_name(shards: Sequence[int]) -> str:
    return "-".join(str(shard) for shard in shards)


def claim(store: Store, shards: Sequence[int], before: Progress, wanted: Claim) -> Claim:
    """The round's claim: `wanted`, or one that another worker made since `pending_claim` found none.

    Who inserts second under the round's token inserts nothing, and finds the first one's.
    """
    job = f"{JOB}.claim.{group_name(shards)}"
    note = json.dumps(asdict(wanted))
    table = _rows(job, shards[:1], before.upto_ms, note)
    store.insert_arrow("watermarks", table, token=f"{job}/{wanted.round}")
    return _find(store, job, wanted.round) or wanted


def pending_claim(store: Store, shards: Sequence[int], before: Progress) -> Claim | None:
    """The claim that a worker made for the next round of these shards and did not finish."""
    return _find(store, f"{JOB}.claim.{group_name(shards)}", before.round + 1)


def _find(store: Store, job: str, number: int) -> Claim | None:
    rows = store.query(_CLAIM, {"job": job, "pattern": f'{{"round": {number}, %'}, role="jobs")
    return Claim(**json.loads(rows[0]["note"])) if rows and rows[0]["n"] else None


def advance(store: Store, shards: Sequence[int], after: Progress) -> None:
    """Remembers the state that a finished round left."""
    table = _rows(JOB, shards, after.upto_ms, _write(after))
    store.insert_arrow("watermarks", table, token=f"{JOB}.state/{group_name(shards)}/{after.round}/{after.upto_ms}")


def states(store: Store) -> Sequence[Mapping[str, Any]]:
    """Per shard how far it is judged (`upto`, ms) and its state as text (`note`)."""
    return store.query(_STATES, {"job": JOB}, role="jobs")

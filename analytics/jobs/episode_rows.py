"""Episodes as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

import orjson
import pyarrow as pa

from tailtrace.analytics.alerting.episodes import Episode
from tailtrace.ingest.store import Store

_SELECT: Final = """
SELECT Id AS id, Rule AS rule, Cause AS cause, State AS state, toInt64(toUnixTimestamp64Milli(OpenedAt)) AS opened_ms,
  toInt64(toUnixTimestamp64Milli(EndedAt)) AS ended_ms, toInt64(toUnixTimestamp64Milli(MutedUntil)) AS muted_ms,
  Reopened AS reopened, Flapping AS flapping, Summary AS summary, Body AS body, Revision AS revision
FROM alerts FINAL WHERE {where} ORDER BY OpenedAt DESC LIMIT {limit:UInt32}
"""
_RECENT: Final = _SELECT.replace("{where}", "State != 'resolved' OR OpenedAt >= toDateTime64({since:Int64}, 3, 'UTC')")
_ONE: Final = _SELECT.replace("{where}", "Id = {id:String}")
_STAMP: Final = pa.timestamp("ms", "UTC")
_SCHEMA: Final = pa.schema(
    [
        ("Id", pa.string()), ("Rule", pa.string()), ("Cause", pa.string()), ("State", pa.string()),
        ("OpenedAt", _STAMP), ("EndedAt", _STAMP), ("MutedUntil", _STAMP), ("Reopened", pa.uint32()),
        ("Flapping", pa.bool_()), ("Summary", pa.string()), ("Body", pa.string()), ("Revision", pa.uint64()),
    ]
)  # fmt: skip


def load(store: Store, since_s: int, limit: int = 2_000) -> list[Episode]:
    """Episodes that are open, or began since then; newest first."""
    return _read(store, _RECENT, since=since_s, limit=limit)


def one(store: Store, identity: str) -> Episode | None:
    """The episode of an id."""
    return next(iter(_read(store, _ONE, id=identity, limit=1)), None)


def _read(store: Store, sql: str, **parameters: object) -> list[Episode]:
    names = [field.name for field in fields(Episode)]
    rows = store.query(sql, parameters, role="jobs")
    return [
        Episode(**{name: orjson.loads(row[name]) if name == "body" else row[name] for name in names}) for row in rows
    ]


def save(store: Store, episodes: Sequence[Episode]) -> None:
    """Write episodes; the highest revision of an id stands, and one revision is written once."""
    if not episodes:
        return
    columns = {
        "Id": [each.id for each in episodes], "Rule": [each.rule for each in episodes],
        "Cause": [each.cause for each in episodes], "State": [each.state for each in episodes],
        "OpenedAt": [each.opened_ms for each in episodes], "EndedAt": [each.ended_ms for each in episodes],
        "MutedUntil": [each.muted_ms for each in episodes], "Reopened": [each.reopened for each in episodes],
        "Flapping": [each.flapping for each in episodes], "Summary": [each.summary for each in episodes],
        "Body": [orjson.dumps(dict(each.body)).decode() for each in episodes],
        "Revision": [each.revision for each in episodes],
    }  # fmt: skip
    store.insert_arrow("alerts", pa.table(columns, schema=_SCHEMA), role="jobs")

"""Changes as they are stored: read, matched with what a new judgement found, written."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Final

import pyarrow as pa

from tailtrace.analytics.detection.counts import INTERVAL_S
from tailtrace.analytics.detection.detector import Found
from tailtrace.ingest.store import Store

SAME: Final = 12
"""Onsets of one series that lie this many intervals apart are one change, seen with more data."""

Key = tuple[str, str, str, str]
"""Metric, service, model and route of a series."""

_SELECT: Final = """
SELECT Id AS id, Metric AS metric, Service AS service, Model AS model, Route AS route,
  toInt64(toUnixTimestamp(Onset)) AS onset,
  toInt64(toUnixTimestamp(SuspectedAt)) AS suspected, toInt64(toUnixTimestamp(ConfirmedAt)) AS confirmed,
  toInt64(toUnixTimestamp(Until)) AS until, State AS state, Statistic AS statistic, OnTop AS on_top,
  Departure AS departure,
  Stage AS stage, StageShare AS stage_share, Cause AS cause, Marker AS marker, Body AS body
FROM changes FINAL WHERE Onset >= toDateTime64({since:Int64}, 0, 'UTC')
"""
_STAMP: Final = pa.timestamp("s", "UTC")
# In the order of ChangeRow's fields.
_SCHEMA: Final = pa.schema(
    [
        ("Id", pa.string()), ("Metric", pa.string()), ("Service", pa.string()), ("Model", pa.string()),
        ("Route", pa.string()), ("Onset", _STAMP), ("SuspectedAt", _STAMP), ("ConfirmedAt", _STAMP), ("Until", _STAMP),
        ("State", pa.string()), ("Statistic", pa.string()), ("Departure", pa.float64()), ("Stage", pa.string()),
        ("StageShare", pa.float64()), ("Cause", pa.string()), ("Marker", pa.string()), ("Body", pa.string()),
        ("OnTop", pa.bool_()), ("UpdatedAt", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One stored change; times are Unix seconds at the edges of intervals, `until` exclusive. `route`: empty for all
    routes together.
    """

    id: str
    metric: str
    service: str
    model: str
    route: str
    onset: int
    suspected: int
    confirmed: int | None
    until: int | None
    state: str
    statistic: str
    departure: float
    stage: str = ""
    stage_share: float = 0.0
    cause: str = ""
    marker: str = ""
    body: str = ""
    on_top: bool = False

    @property
    def series(self) -> Key:
        return self.metric, self.service, self.model, self.route

    def found(self) -> Found:
        """As the detector carries it on."""
        until = None if self.until is None else self.until // INTERVAL_S - 1
        confirmed = None if self.confirmed is None else self.confirmed // INTERVAL_S - 1
        state: Any = self.state
        return Found(
            self.onset // INTERVAL_S, self.suspected // INTERVAL_S - 1, self.statistic, self.departure, state,
            confirmed, until, self.on_top,
        )  # fmt: skip


def load(store: Store, since_s: int) -> list[ChangeRow]:
    """Changes that began at or after `since_s`."""
    names = [field.name for field in fields(ChangeRow)]
    rows = store.query(_SELECT, {"since": since_s}, role="jobs")
    return [ChangeRow(**{name: row[name] for name in names}) for row in rows]


def save(store: Store, rows: Sequence[ChangeRow]) -> None:
    """Write rows; the newest of an id stands."""
    if not rows:
        return
    now = time.time_ns() // 1000
    values = zip(*(astuple(row) for row in rows), strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(values, _SCHEMA, strict=False)]
    arrays.append(pa.array([now] * len(rows), _SCHEMA[-1].type))
    store.insert_arrow("changes", pa.Table.from_arrays(arrays, schema=_SCHEMA), role="jobs")


def merged(series: Key, stored: Sequence[ChangeRow], found: Sequence[Found], from_s: int) -> list[ChangeRow]:
    """The rows of a series that differ from what is stored, after a judgement of all that began at or after `from_s`.

    A change keeps its id, and what was worked out about it, while its onset moves a little; a stored one that the data
    no longer show is withdrawn.
    """
    left = [row for row in stored if row.series == series and row.state != "cost_shift"]
    changed = []
    for each in found:
        fresh = _row(series, each)
        old = next((row for row in left if _same(row, fresh)), None)
        if old is not None:
            left.remove(old)
            fresh = replace(
                fresh, id=old.id, stage=old.stage, stage_share=old.stage_share, cause=old.cause, marker=old.marker,
                body=old.body,
            )  # fmt: skip
            if old.confirmed is not None and fresh.confirmed is not None:  # what was told stays as it was told
                fresh = replace(fresh, onset=old.onset, confirmed=old.confirmed, suspected=old.suspected)
            if fresh == replace(old, departure=fresh.departure, statistic=fresh.statistic):
                continue
        changed.append(fresh)
    gone = ("suspected", "confirmed", "resolved", "dismissed")
    changed += [
        replace(row, state="withdrawn", until=row.until or row.suspected)
        for row in left
        if row.onset >= from_s and row.state in gone
    ]
    return changed


def _same(row: ChangeRow, fresh: ChangeRow) -> bool:
    if row.on_top != fresh.on_top:
        return False
    if abs(row.onset - fresh.onset) <= SAME * INTERVAL_S:
        return True
    end, other = (each.until if each.until is not None else 1 << 60 for each in (row, fresh))
    both = row.confirmed is not None and fresh.confirmed is not None
    return both and row.onset < other and fresh.onset < end


def _row(series: Key, each: Found) -> ChangeRow:
    identity = hashlib.blake2b("\x1f".join((*series, str(each.onset))).encode(), digest_size=8).hexdigest()
    return ChangeRow(
        identity, *series, each.onset * INTERVAL_S, (each.suspected + 1) * INTERVAL_S,
        None if each.confirmed is None else (each.confirmed + 1) * INTERVAL_S,
        None if each.until is None else (each.until + 1) * INTERVAL_S, each.state, each.statistic, each.departure,
        on_top=each.on_top,
    )  # fmt: skip

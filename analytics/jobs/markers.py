"""Deploys and configuration changes, found in the telemetry: a service that answers with a value it had not before."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import orjson
import pyarrow as pa

from tailtrace.ingest.store import Store

_SIDE_BY_SIDE_MS: Final = 900_000  # values that were all there from the start are engines side by side, no change
# First and last request of each value in the window; a value that was there from the window's start is no change.
_VALUES: Final = """
SELECT Service AS service, kv.1 AS kind, kv.2 AS value,
  toInt64(toUnixTimestamp64Milli(min(toDateTime64(Start, 3, 'UTC')))) AS first,
  toInt64(toUnixTimestamp64Milli(max(toDateTime64(Start, 3, 'UTC')))) AS last
FROM requests ARRAY JOIN [('version', toString(Version)), ('engine_version', toString(EngineVersion)),
  ('precision', toString(Precision)), ('quantization', toString(Quantization)), ('model', toString(Model)),
  ('engine', toString(Engine)), ('tp', if(Tp > 0, toString(Tp), '')), ('gpu_model', toString(GpuModel))] AS kv
WHERE toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC') AND Sign = 1 AND kv.2 != ''
GROUP BY service, kind, value ORDER BY service, kind, first LIMIT 5000
"""
# What the processes that served them say of their deployment.
_REPLICAS: Final = """
SELECT Service AS service, toString(Replica) AS replica,
  toInt64(toUnixTimestamp64Milli(min(toDateTime64(Start, 3, 'UTC')))) AS first,
  toInt64(toUnixTimestamp64Milli(max(toDateTime64(Start, 3, 'UTC')))) AS last
FROM requests WHERE toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC') AND Sign = 1 AND Replica != ''
GROUP BY service, replica ORDER BY first LIMIT 5000
"""
_DEPLOYMENTS: Final = """
SELECT Attributes['service.instance.id'] AS replica,
  mapFilter((k, v) -> startsWith(k, 'deployment.') AND v != '', Attributes) AS attributes
FROM resources FINAL WHERE notEmpty(attributes) AND replica != '' LIMIT 5000
"""
_LOAD: Final = """
SELECT Id AS id, toInt64(toUnixTimestamp64Milli(Time)) AS time_ms, Service AS service, Kind AS kind, Was AS was,
  Became AS became, Text AS text, Source AS source,
  Effect AS effect
FROM markers FINAL WHERE Time >= toDateTime64({since:Int64}, 3, 'UTC') ORDER BY Time DESC LIMIT {limit:UInt32}
"""
_SCHEMA: Final = pa.schema(
    [
        ("Id", pa.string()), ("Time", pa.timestamp("ms", "UTC")), ("Service", pa.string()), ("Kind", pa.string()),
        ("Was", pa.string()), ("Became", pa.string()), ("Text", pa.string()), ("Source", pa.string()),
        ("Effect", pa.string()), ("UpdatedAt", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Marker:
    """At `time_ms` (Unix) the service's `kind` went from `was` to `became`; or `text`, as the API was told. `effect`:
    what like requests did before and after, null until enough have come.
    """

    id: str
    time_ms: int
    service: str
    kind: str
    was: str
    became: str
    text: str
    source: str
    effect: dict[str, Any] | None = None


def load(store: Store, since_s: int, limit: int = 500) -> list[Marker]:
    """The newest markers since then, newest first."""
    rows: Sequence[Any] = store.query(_LOAD, {"since": since_s, "limit": limit}, role="jobs")
    return [Marker(**{**row, "effect": orjson.loads(row["effect"]) if row["effect"] else None}) for row in rows]


def save(store: Store, markers: Sequence[Marker]) -> None:
    """Write markers; the newest row of an id stands."""
    if not markers:
        return
    now = time.time_ns() // 1000
    columns = {
        "Id": [each.id for each in markers], "Time": [each.time_ms for each in markers],
        "Service": [each.service for each in markers], "Kind": [each.kind for each in markers],
        "Was": [each.was for each in markers], "Became": [each.became for each in markers],
        "Text": [each.text for each in markers], "Source": [each.source for each in markers],
        "Effect": [orjson.dumps(each.effect).decode() if each.effect else "" for each in markers],
        "UpdatedAt": [now] * len(markers),
    }  # fmt: skip
    store.insert_arrow("markers", pa.table(columns, schema=_SCHEMA), role="jobs")


def marker_id(service: str, kind: str, was: str, became: str) -> str:
    return hashlib.blake2b("\x1f".join((service, kind, was, became)).encode(), digest_size=8).hexdigest()


def _deployments(store: Store, since_s: int) -> list[dict[str, Any]]:
    """Values of `deployment.*` by service, in the order in which they first served, as `_VALUES` gives others."""
    told = {row["replica"]: dict(row["attributes"]) for row in store.query(_DEPLOYMENTS, role="jobs")}
    if not told:
        return []
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in store.query(_REPLICAS, {"since": since_s}, role="jobs"):
        for kind, value in told.get(row["replica"], {}).items():
            place = str(row["service"]), str(kind), str(value)
            made = {"service": place[0], "kind": kind, "value": value, "first": row["first"], "last": row["last"]}
            known = found.setdefault(place, made)
            known["last"] = max(int(known["last"]), int(row["last"]))
    return list(found.values())


def find_markers(store: Store, since_s: int) -> list[Marker]:
    """Writes the changes of value since then that are new or have moved, and gives all that are known."""
    known = {marker.id: marker for marker in load(store, since_s)}
    by_place: dict[tuple[str, str], list[Any]] = {}
    for row in store.query(_VALUES, {"since": since_s}, role="jobs"):
        by_place.setdefault((row["service"], row["kind"]), []).append(row)
    for row in _deployments(store, since_s):
        by_place.setdefault((row["service"], row["kind"]), []).append(row)
    fresh = []
    for (service, kind), rows in by_place.items():
        for before, after in pairwise(rows):
            if int(after["first"]) - int(rows[0]["first"]) < _SIDE_BY_SIDE_MS:
                continue
            identity = marker_id(service, kind, before["value"], after["value"])
            marker = Marker(
                identity, int(after["first"]), service, kind, before["value"], after["value"], "", "telemetry"
            )
            old = known.get(identity)
            if old is None or replace(old, effect=None) != marker:
                fresh.append(marker)
                known[identity] = marker
    save(store, fresh)
    return list(known.values())

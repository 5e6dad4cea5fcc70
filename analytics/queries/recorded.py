"""What the jobs recorded: changes of a service, deploy and configuration markers, and episodes of alerts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.ingest.store import Store

MOST: Final = 200


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """When a series departed from what was usual. `stage` grew most among like requests, by `stage_share` of all
    growth; empty while that is not worked out.
    """

    id: str
    metric: str
    service: str
    model: str
    state: str
    onset_unix_ns: str
    until_unix_ns: str | None
    departure: float
    stage: str
    stage_share: float
    marker: str


@dataclass(frozen=True, slots=True)
class RecordedMarker:
    """A deploy or a configuration change."""

    id: str
    time_unix_ns: str
    service: str
    kind: str
    was: str
    became: str
    text: str


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """One alert from its start until it is over."""

    id: str
    rule: str
    state: str
    opened_unix_ns: str
    ended_unix_ns: str | None
    muted_until_unix_ns: str | None
    reopened: int
    flapping: bool
    summary: str


_CHANGES: Final = """
SELECT Id AS id, Metric AS metric, Service AS service, Model AS model, State AS state, Departure AS departure,
  toUnixTimestamp(Onset) AS onset, toUnixTimestamp(Until) AS until, Stage AS stage, StageShare AS share,
  Marker AS marker
FROM changes FINAL
WHERE Onset < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND (Until IS NULL OR Until >= fromUnixTimestamp64Nano({since:Int64}, 'UTC'))
  AND ({service:String} = '' OR Service = {service:String}) AND State != 'withdrawn'
ORDER BY Onset DESC LIMIT {limit:UInt32}
"""
_MARKERS: Final = """
SELECT Id AS id, toUnixTimestamp64Milli(Time) AS ms, Service AS service, Kind AS kind, Was AS was, Became AS became,
  Text AS text
FROM markers FINAL
WHERE Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND ({service:String} = '' OR Service = {service:String} OR Service = '')
ORDER BY Time DESC LIMIT {limit:UInt32}
"""
_EPISODES: Final = """
SELECT Id AS id, Rule AS rule, State AS state, toUnixTimestamp64Milli(OpenedAt) AS opened,
  toUnixTimestamp64Milli(EndedAt) AS ended, toUnixTimestamp64Milli(MutedUntil) AS muted, Reopened AS reopened,
  Flapping AS flapping, Summary AS summary
FROM alerts FINAL WHERE {state:String} = '' OR State = {state:String} ORDER BY OpenedAt DESC LIMIT {limit:UInt32}
"""
_S: Final = 1_000_000_000
_MS: Final = 1_000_000


def recorded_changes(
    store: Store, since_ns: int, until_ns: int, *, service: str = "", limit: int = MOST
) -> list[RecordedChange]:
    """Changes that overlap [since, until), newest first."""
    values = {"since": since_ns, "until": until_ns, "service": service, "limit": limit}
    return [
        RecordedChange(
            row["id"], row["metric"], row["service"], row["model"], row["state"], str(int(row["onset"]) * _S),
            _text(row["until"], _S), float(row["departure"]), row["stage"], float(row["share"]), row["marker"],
        )
        for row in store.query(_CHANGES, values, role="ui")
    ]  # fmt: skip


def recorded_markers(
    store: Store, since_ns: int, until_ns: int, *, service: str = "", limit: int = MOST
) -> list[RecordedMarker]:
    """Markers of a service in [since, until), newest first."""
    values = {"since": since_ns, "until": until_ns, "service": service, "limit": limit}
    return [
        RecordedMarker(
            row["id"], str(int(row["ms"]) * _MS), row["service"], row["kind"], row["was"], row["became"], row["text"]
        )
        for row in store.query(_MARKERS, values, role="ui")
    ]


def recorded_episodes(store: Store, *, state: str = "", limit: int = MOST) -> list[RecordedEpisode]:
    """Episodes, newest first; `state` open, acknowledged or resolved, or all."""
    return [
        RecordedEpisode(
            row["id"], row["rule"], row["state"], str(int(row["opened"]) * _MS), _text(row["ended"], _MS),
            _text(row["muted"], _MS), int(row["reopened"]), bool(row["flapping"]), row["summary"],
        )
        for row in store.query(_EPISODES, {"state": state, "limit": limit}, role="ui")
    ]  # fmt: skip


def _text(value: int | None, unit_ns: int) -> str | None:
    return None if value is None else str(int(value) * unit_ns)

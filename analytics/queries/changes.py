"""Changes of a service's latency, how well each series can be judged, and deploy markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store

_S: Final = 1_000_000_000
_COLUMNS: Final = """Id AS id, Metric AS metric, Service AS service, Model AS model, Route AS route, State AS state,
  toInt64(toUnixTimestamp(Onset)) AS onset, toInt64(toUnixTimestamp(SuspectedAt)) AS suspected,
  toInt64(toUnixTimestamp(ConfirmedAt)) AS confirmed, toInt64(toUnixTimestamp(Until)) AS until,
  Statistic AS statistic, Departure AS departure, Stage AS stage, StageShare AS stage_share, Cause AS cause,
  OnTop AS on_top, Body AS body"""
_LIST: Final = f"""
SELECT {_COLUMNS} FROM changes FINAL
WHERE ({{service:String}} = '' OR Service = {{service:String}}) AND ({{state:String}} = '' OR State = {{state:String}})
  AND Onset >= toDateTime64({{since:Int64}}, 0, 'UTC') AND Onset < toDateTime64({{until:Int64}}, 0, 'UTC')
ORDER BY Onset DESC, id LIMIT {{limit:UInt32}}
"""
_ONE: Final = f"SELECT {_COLUMNS} FROM changes FINAL WHERE Id = {{id:String}}"
_SERIES: Final = """
SELECT Metric AS metric, Service AS service, Model AS model, Route AS route,
  toInt64(toUnixTimestamp(JudgedUpTo)) AS upto,
  Learning AS learning, LearningOf AS learning_of, Covered AS covered
FROM series_state FINAL WHERE Metric != 'stages' AND ({service:String} = '' OR Service = {service:String})
ORDER BY service, model, route, metric LIMIT 2000
"""


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """A change of one series; `route` is empty for all routes together. Changes of one `cause` are told together.

    `state`: suspected, confirmed, dismissed, resolved, accepted, withdrawn; cost_shift where `stage` grew and the
    request did not. `on_top`: came while another change of the series was going on. `detail`: before and after, stages,
    traffic, examples; null until it is confirmed.
    """

    id: str
    metric: str
    service: str
    model: str
    route: str
    state: str
    onset_unix_ns: str
    suspected_unix_ns: str
    confirmed_unix_ns: str | None
    until_unix_ns: str | None
    statistic: str
    departure: float
    stage: str
    stage_share: float
    cause: str
    on_top: bool
    detail: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class SeriesState:
    """`learning` of `learning_of` reference requests are there; both 0 once the series is judged. `covered`: share of
    its requests that are of a kind the reference knows.
    """

    metric: str
    service: str
    model: str
    route: str
    judged_up_to_unix_ns: str
    learning: int
    learning_of: int
    covered: float


@dataclass(frozen=True, slots=True)
class ChangeList:
    """Newest first; `total` of those within the limit of the answer."""

    changes: list[ChangeEntry]
    total: int
    next: None
    series: list[SeriesState]


def list_changes(
    store: Store, *, service: str = "", state: str = "", since_ns: int = 0, until_ns: int = 1 << 62, limit: int = 200
) -> ChangeList:
    """Changes that began in [since, until)."""
    values = {
        "service": service, "state": state, "since": since_ns // _S, "until": min(until_ns // _S, 4_294_967_295),
        "limit": limit,
    }  # fmt: skip
    found = [_entry(row) for row in store.query(_LIST, values, role="ui")]
    series = [
        SeriesState(
            row["metric"], row["service"], row["model"], row["route"], str(int(row["upto"]) * _S), int(row["learning"]),
            int(row["learning_of"]), float(row["covered"]),
        )
        for row in store.query(_SERIES, {"service": service}, role="ui")
    ]  # fmt: skip
    return ChangeList(found, len(found), None, series)


def get_change(store: Store, identity: str) -> ChangeEntry:
    """One change. Raises NotFound."""
    rows = store.query(_ONE, {"id": identity}, role="ui")
    if not rows:
        raise NotFound(f"there is no change {identity[:40]!r}")
    return _entry(rows[0])


def _entry(row: Any) -> ChangeEntry:
    def ns(value: int | None) -> str | None:
        return None if value is None else str(int(value) * _S)

    return ChangeEntry(
        row["id"], row["metric"], row["service"], row["model"], row["route"], row["state"], str(int(row["onset"]) * _S),
        str(int(row["suspected"]) * _S), ns(row["confirmed"]), ns(row["until"]), row["statistic"],
        float(row["departure"]), row["stage"], float(row["stage_share"]), row["cause"], bool(row["on_top"]),
        orjson.loads(row["body"]) if row["body"] else None,
    )  # fmt: skip

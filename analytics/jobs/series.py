"""Reads series of service and model, and of their routes, out of the five-minute strata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tailtrace.analytics.detection.counts import INTERVAL_S, Counts, counts
from tailtrace.analytics.detection.stages import StageCells
from tailtrace.analytics.jobs.change_rows import Key
from tailtrace.ingest.store import Store
from tailtrace.stages import REQUEST_STAGES, UNEXPLAINED

METRICS: Final = ("duration", "ttft", "tpot")
MAX_SERIES: Final = 500
MAX_ROUTES: Final = 200
STAGES: Final = (*(stage.name for stage in REQUEST_STAGES), UNEXPLAINED)
_STEMS: Final = (*(stage.column for stage in REQUEST_STAGES), "Unexplained")
_SUMS: Final = ", ".join(f"toFloat64(sum({stem}Ns)) AS {stem}Sum" for stem in _STEMS)

_TOTALS: Final = """
SELECT Service AS service, Model AS model, toInt64(sum(N)) AS n,
  toInt64(intDiv(toUnixTimestamp(max(Time)), 300)) AS newest
FROM strata_5m WHERE Metric = 'duration' AND Outcome = 'ok' AND Time >= toDateTime64({since:Int64}, 0, 'UTC')
  AND Time < toDateTime64({until:Int64}, 0, 'UTC')
GROUP BY service, model ORDER BY n DESC LIMIT {limit:UInt32}
"""
_NEWEST: Final = "SELECT toInt64(intDiv(toUnixTimestamp(max(Time)), 300)) AS newest, count() AS n FROM strata_5m"
_ROUTES: Final = """
SELECT Service AS service, Model AS model, Route AS route, toInt64(sum(N)) AS n,
  toInt64(intDiv(toUnixTimestamp(max(Time)), 300)) AS newest
FROM strata_5m WHERE Metric = 'duration' AND Outcome = 'ok' AND Time >= toDateTime64({since:Int64}, 0, 'UTC')
  AND Time < toDateTime64({until:Int64}, 0, 'UTC') AND Route != ''
GROUP BY service, model, route HAVING n >= {fewest:Int64}
ORDER BY n DESC LIMIT {limit:UInt32}
"""
_SERVICES: Final = """
SELECT Service AS service FROM rollup_1m WHERE Metric = 'duration' AND Time >= toDateTime64({since:Int64}, 0, 'UTC')
  AND Time < toDateTime64({until:Int64}, 0, 'UTC')
GROUP BY service HAVING sum(N) > 0 ORDER BY sum(N) DESC LIMIT {limit:UInt32}
"""
_CELLS: Final = """
SELECT toInt64(intDiv(toUnixTimestamp(Time), 300)) AS interval, Stratum AS stratum, toInt64(K) AS bucket,
  toInt64(sum(N)) AS n
FROM strata_5m WHERE Metric = {metric:String} AND Service = {service:String} AND Model = {model:String}
  AND ({route:String} = '' OR Route = {route:String}) AND Outcome = 'ok'
  AND Time >= toDateTime64({since:Int64}, 0, 'UTC') AND Time < toDateTime64({until:Int64}, 0, 'UTC')
GROUP BY interval, stratum, bucket
"""
_STAGES: Final = (
    "SELECT toInt64(intDiv(toUnixTimestamp(Time), 300)) AS interval, Stratum AS stratum, toFloat64(sum(N)) AS n, "
    + _SUMS
    + " FROM strata_5m"
    " WHERE Metric = {metric:String} AND Service = {service:String} AND Model = {model:String} AND Outcome = 'ok'"
    " AND ({route:String} = '' OR Route = {route:String})"
    " AND Time >= toDateTime64({since:Int64}, 0, 'UTC') AND Time < toDateTime64({until:Int64}, 0, 'UTC')"
    " GROUP BY interval, stratum HAVING n > 0"
)


@dataclass(frozen=True, slots=True)
class Total:
    """A service and model, or a route of them, with its requests in a range of intervals; `newest`: the last interval
    that has any.
    """

    service: str
    model: str
    n: int
    newest: int
    route: str = ""


def newest_interval(store: Store) -> int | None:
    """The last interval in which a request ended; None in an empty store."""
    row = store.query(_NEWEST, role="jobs")[0]
    return int(row["newest"]) if row["n"] else None


def totals(store: Store, since: int, until: int) -> list[Total]:
    """The busiest series of intervals [since, until)."""
    parameters = {"since": since * INTERVAL_S, "until": until * INTERVAL_S, "limit": MAX_SERIES}
    return [
        Total(str(row["service"]), str(row["model"]), int(row["n"]), int(row["newest"]))
        for row in store.query(_TOTALS, parameters, role="jobs")
    ]


def routes(store: Store, since: int, until: int, fewest: int) -> list[Total]:
    """Routes with at least `fewest` requests in intervals [since, until), the busiest first."""
    parameters = {
        "since": since * INTERVAL_S, "until": until * INTERVAL_S, "fewest": fewest, "limit": MAX_ROUTES,
    }  # fmt: skip
    return [
        Total(str(row["service"]), str(row["model"]), int(row["n"]), int(row["newest"]), str(row["route"]))
        for row in store.query(_ROUTES, parameters, role="jobs")
    ]


def services(store: Store, since_s: int, until_s: int) -> list[str]:
    """Services that answered anything, well or not, in [since, until) Unix seconds; by name."""
    parameters = {"since": since_s, "until": until_s, "limit": MAX_SERIES}
    return sorted(str(row["service"]) for row in store.query(_SERVICES, parameters, role="jobs"))


def cells(store: Store, key: Key, since: int, until: int) -> Counts:
    """The histogram of a series in intervals [since, until), by kind of traffic."""
    parameters = {**_of(key), "since": since * INTERVAL_S, "until": until * INTERVAL_S}
    table = store.query_arrow(_CELLS, parameters, role="jobs")
    return counts(*(table[name].to_numpy() for name in ("interval", "stratum", "bucket", "n")))


def _of(key: Key) -> dict[str, str | int]:
    return dict(zip(("metric", "service", "model", "route"), key, strict=True))


def stage_cells(
    store: Store, key: Key, before: tuple[int, int], after: tuple[int, int]
) -> tuple[StageCells, StageCells]:
    """Requests and stage sums of two ranges of intervals, kinds numbered alike on both sides."""
    tables = []
    for since, until in (before, after):
        parameters = {**_of(key), "since": since * INTERVAL_S, "until": until * INTERVAL_S}
        tables.append(store.query_arrow(_STAGES, parameters, role="jobs"))
    kinds = np.unique(np.concatenate([table["stratum"].to_numpy() for table in tables]))
    made = [
        StageCells(
            table["interval"].to_numpy(),
            np.searchsorted(kinds, table["stratum"].to_numpy()),
            table["n"].to_numpy(),
            np.stack([table[f"{stem}Sum"].to_numpy() for stem in _STEMS], axis=1),
        )
        for table in tables
    ]
    return made[0], made[1]

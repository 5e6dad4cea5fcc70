"""Which services, models, routes and outcomes there are in a window: what the filters offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.queries.window import Window
from tailtrace.ingest.store import Store


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """One service and what it served. `simulated`: some of its requests are made data."""

    service: str
    requests: int
    roots: int
    models: list[str]
    routes: list[str]
    versions: list[str]
    outcomes: list[str]
    engines: list[str]
    simulated: bool


@dataclass(frozen=True, slots=True)
class Services:
    """All services with requests in [since, until)."""

    since_unix_ns: str | None
    until_unix_ns: str | None
    services: list[ServiceEntry]


_SQL: Final = """
SELECT Service AS service, sum(Sign) AS requests, sumIf(Sign, IsRoot) AS roots,
  arraySort(groupUniqArrayIf(50)(Model, Model != '')) AS models,
  arraySort(groupUniqArrayIf(50)(Route, Route != '')) AS routes,
  arraySort(groupUniqArrayIf(50)(Version, Version != '')) AS versions,
  arraySort(groupUniqArray(10)(Outcome)) AS outcomes,
  arraySort(groupUniqArrayIf(10)(Engine, Engine != '')) AS engines, max(Simulated) AS simulated
FROM requests
WHERE End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')
  AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC') AND Kind = 'request'
GROUP BY Service HAVING requests > 0 ORDER BY requests DESC, Service LIMIT 500
"""


def services(store: Store, window: Window | None) -> Services:
    """Services of a window, busiest first (at most 500); empty when there is no data."""
    if window is None:
        return Services(None, None, [])
    rows = store.query(_SQL, {"since": window.since_ns, "until": window.until_ns}, role="ui")
    entries = [
        ServiceEntry(
            service=row["service"],
            requests=int(row["requests"]),
            roots=int(row["roots"]),
            models=list(row["models"]),
            routes=list(row["routes"]),
            versions=list(row["versions"]),
            outcomes=list(row["outcomes"]),
            engines=list(row["engines"]),
            simulated=bool(row["simulated"]),
        )
        for row in rows
    ]
    return Services(str(window.since_ns), str(window.until_ns), entries)

"""The values that requests of a filter have, most frequent first: what a list can be narrowed by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.queries.request_filter import RequestFilter, parameters, where
from tailtrace.ingest.store import Store

SHOWN: Final = 6
# Filter of a list -> column of requests.
COLUMNS: Final = {
    "service": "Service",
    "outcome": "Outcome",
    "model": "Model",
    "route": "Route",
    "version": "Version",
    "replica": "Replica",
    "tenant": "Tenant",
}


@dataclass(frozen=True, slots=True)
class FacetValue:
    value: str
    requests: int


@dataclass(frozen=True, slots=True)
class Facet:
    """`values` are the most frequent of `distinct` values; requests without one are left out."""

    name: str
    values: list[FacetValue]
    distinct: int


@dataclass(frozen=True, slots=True)
class Facets:
    """Of `total` requests that match."""

    facets: list[Facet]
    total: int


_PAIRS: Final = ", ".join(f"('{name}', toString({column}))" for name, column in COLUMNS.items())
# Counted by all their values together first: there are few such combinations, and each is taken apart once.
_VALUES: Final = (
    "SELECT pair.1 AS name, pair.2 AS value, sum(m) AS n, count() OVER (PARTITION BY name) AS distinct,"
    " sum(n) OVER (PARTITION BY name) AS total"
    f" FROM (SELECT arrayJoin([{_PAIRS}]) AS pair, m FROM"
    f" (SELECT {', '.join(COLUMNS.values())}, sum(Sign) AS m FROM requests {{where}} GROUP BY ALL))"
    " GROUP BY name, value HAVING n > 0 ORDER BY name, n DESC, value LIMIT {shown:UInt8} BY name"
)


def facets(store: Store, wanted: RequestFilter, *, shown: int = SHOWN) -> Facets:
    """Values by facet, in the order of COLUMNS; facets with no value at all are left out."""
    values = {**parameters(wanted), "shown": shown}
    rows = store.query(_VALUES.replace("{where}", where(wanted)), values, role="ui")
    found = []
    for name in COLUMNS:
        mine = [row for row in rows if row["name"] == name]
        listed = [FacetValue(row["value"], int(row["n"])) for row in mine if row["value"]]
        if listed:
            found.append(Facet(name, listed, int(mine[0]["distinct"])))
    return Facets(found, int(rows[0]["total"]) if rows else 0)

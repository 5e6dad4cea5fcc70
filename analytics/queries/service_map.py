"""Which service calls which, how often, and how long the way between them takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.queries.window import Window
from tailtrace.ingest.store import Store


@dataclass(frozen=True, slots=True)
class MapNode:
    """`errors` are requests whose outcome is neither ok nor cancelled."""

    service: str
    requests: int
    errors: int
    p50_ns: int
    p95_ns: int
    is_root: bool


@dataclass(frozen=True, slots=True)
class MapEdge:
    """Calls on the critical path of requests; `network_ns` is the mean time of a call outside both services."""

    caller: str
    callee: str
    calls: int
    network_ns: int


@dataclass(frozen=True, slots=True)
class ServiceMap:
    """Nodes by requests, edges by calls. `edge_requests`: how many requests the edges were read from."""

    since_unix_ns: str
    until_unix_ns: str
    nodes: list[MapNode]
    edges: list[MapEdge]


_WHERE: Final = (
    " WHERE Kind = 'request' AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')"
    " AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
)
_NODES: Final = (
    "SELECT Service AS service, sum(Sign) AS n, sumIf(Sign, Outcome NOT IN ('ok', 'cancelled')) AS errors,"
    " quantilesTDigestIf(0.5, 0.95)(DurationNs, Sign = 1) AS q, max(IsRoot) AS root FROM requests"
    + _WHERE
    + " GROUP BY Service HAVING n > 0 ORDER BY n DESC LIMIT 60"
)
_EDGES: Final = (
    "SELECT step.edge AS edge, sum(Sign) AS n, sum(Sign * toInt64(step.ns)) AS ns FROM (SELECT Sign,"
    " arrayJoin(arrayFilter(p -> p.edge != '', Path)) AS step FROM requests"
    + _WHERE
    + ") GROUP BY edge HAVING n > 0 ORDER BY n DESC LIMIT 200"
)


def service_map(store: Store, window: Window) -> ServiceMap:
    """Services and the calls between them in a window."""
    values = {"since": window.since_ns, "until": window.until_ns}
    nodes = [
        MapNode(
            row["service"], int(row["n"]), int(row["errors"]), int(row["q"][0]), int(row["q"][1]), bool(row["root"])
        )
        for row in store.query(_NODES, values, role="ui")
    ]
    edges = []
    for row in store.query(_EDGES, values, role="ui"):
        caller, arrow, callee = str(row["edge"]).partition("->")
        if arrow and caller != callee:
            edges.append(MapEdge(caller, callee, int(row["n"]), int(row["ns"]) // max(1, int(row["n"]))))
    return ServiceMap(str(window.since_ns), str(window.until_ns), nodes, edges)

"""Latency over time as counts by moment and duration, with the percentiles of each moment over them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

from tailtrace.analytics.queries.percentiles import BASE, Percentile, percentile_of_buckets
from tailtrace.analytics.queries.request_filter import RequestFilter, parameters, where
from tailtrace.analytics.queries.window import Window
from tailtrace.ingest.store import Store

QUANTILES: Final = (0.5, 0.95, 0.99)
BUCKETS_A_ROW: Final = 8  # of the rollups' 2 % buckets: a row of cells spans 17 %


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Column c of row r counts the requests that ended in [times[c], + step_ns) and took low_ns[r] to high_ns[r].

    `slowest` holds the trace id of the slowest request of each cell, empty where there is none. `percentiles` are P50,
    P95 and P99 by column, of the same requests.
    """

    since_unix_ns: str
    until_unix_ns: str
    step_ns: int
    total: int
    times_unix_ns: list[str]
    low_ns: list[int]
    high_ns: list[int]
    counts: list[list[int]]
    slowest: list[list[str]]
    percentiles: list[list[Percentile]]


_CELLS: Final = (
    "SELECT toInt64(intDiv(toUnixTimestamp64Nano(End) - {since:Int64}, {step:Int64})) AS i,"
    " toInt64(ceil(log(greatest(DurationNs, 1)) / log(1.02))) AS k, sum(Sign) AS n,"
    " argMaxIf(TraceId, DurationNs, Sign = 1) AS slowest, maxIf(DurationNs, Sign = 1) AS longest"
    " FROM requests {where} GROUP BY i, k HAVING n > 0 ORDER BY i, k"
)


def heatmap(store: Store, window: Window, wanted: RequestFilter) -> Heatmap:
    """The heatmap of a window; of `wanted`, its times, order and page do not matter."""
    wanted = replace(wanted, since_ns=window.since_ns, until_ns=window.until_ns)
    values = {**parameters(wanted), "step": window.step_ns}
    cells = store.query(_CELLS.replace("{where}", where(wanted)), values, role="ui")
    columns = -(-(window.until_ns - window.since_ns) // window.step_ns)
    by_column: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for cell in cells:
        by_column[int(cell["i"])].append((int(cell["k"]), int(cell["n"])))
    rows = [int(cell["k"]) // BUCKETS_A_ROW for cell in cells]
    first, last = (min(rows), max(rows)) if rows else (0, -1)
    counts = [[0] * columns for _ in range(first, last + 1)]
    slowest = [[""] * columns for _ in range(first, last + 1)]
    longest: dict[tuple[int, int], int] = {}
    for cell, row in zip(cells, rows, strict=True):
        place = (row - first, int(cell["i"]))
        counts[place[0]][place[1]] += int(cell["n"])
        if int(cell["longest"]) >= longest.get(place, 0):
            longest[place] = int(cell["longest"])
            slowest[place[0]][place[1]] = cell["slowest"]
    edges = [round(BASE ** (row * BUCKETS_A_ROW - 1)) for row in range(first, last + 2)]
    return Heatmap(
        str(window.since_ns),
        str(window.until_ns),
        window.step_ns,
        sum(map(sum, counts)),
        [str(window.since_ns + at * window.step_ns) for at in range(columns)],
        edges[:-1] if rows else [],
        edges[1:] if rows else [],
        counts,
        slowest,
        [[percentile_of_buckets(q, by_column.get(at, [])) for at in range(columns)] for q in QUANTILES],
    )

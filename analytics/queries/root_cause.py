"""Which service made a service's requests slower, ranked over every service on their critical paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailtrace.analytics.queries.selection import Selection
from tailtrace.analytics.statistics.root_cause import PathTimes, kinds_of, rank
from tailtrace.ingest.store import Store

MAX_ROWS: Final = 20_000
FEWEST: Final = 20


@dataclass(frozen=True, slots=True)
class Suspect:
    """`extra_ns` a request that the service's own time and its edges gained; `share` of all that any gained."""

    service: str
    extra_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class RootCause:
    """Services by the time they gained, most first; the reference is as long a time before, or as given."""

    service: str
    since_unix_ns: str
    until_unix_ns: str
    reference_since_unix_ns: str
    reference_until_unix_ns: str
    requests: int
    reference_requests: int
    suspects: list[Suspect]
    reason: str | None


_ROWS: Final = """
SELECT Path, cityHash64(Name, Route, Stratum) AS kind FROM requests FINAL
WHERE Kind = 'request' AND {where}
  AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
ORDER BY cityHash64(TraceId, 'sample') LIMIT {limit:UInt64}
SETTINGS do_not_merge_across_partitions_select_final = 1
"""


def root_cause(store: Store, selection: Selection, reference: Selection) -> RootCause:
    """The ranking for the requests of a selection against a reference selection of the same service."""
    tables = [
        store.query_arrow(_ROWS.replace("{where}", one.where()), {**one.parameters(), "limit": MAX_ROWS}, role="ui")
        for one in (selection, reference)
    ]
    counts = [table.num_rows for table in tables]
    suspects: list[Suspect] = []
    if min(counts) >= FEWEST:
        table = pa.concat_tables(tables, promote_options="permissive")
        services = services_of(table["Path"])
        scored = paths_of(table["Path"], services).by_request(table.num_rows)
        kind = kinds_of([table["kind"].to_numpy()])
        here = np.arange(table.num_rows) < counts[0]
        extra = rank(scored, kind, here, ~here)
        gained = float(np.maximum(extra, 0).sum())
        suspects = [
            Suspect(services[k], round(float(extra[k])), max(0.0, float(extra[k])) / gained if gained else 0.0)
            for k in np.argsort(-extra, kind="stable")
        ]
    return RootCause(
        selection.service,
        str(selection.since_ns),
        str(selection.until_ns),
        str(reference.since_ns),
        str(reference.until_ns),
        counts[0],
        counts[1],
        suspects,
        None if min(counts) >= FEWEST else f"{counts[0]} and {counts[1]} requests; {FEWEST} of each are needed",
    )


def _fields(paths: Any) -> tuple[Any, Any]:
    lists = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks)
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return lists.flatten(), np.repeat(np.arange(len(lists)), lengths)


def services_of(paths: Any) -> list[str]:
    """Every service that paths name, as place or as an end of an edge."""
    places, _ = _fields(paths)
    names = {str(name) for name in places.field("service").unique().to_pylist() if name}
    for edge in places.field("edge").unique().to_pylist():
        if edge:
            names.update(end for end in str(edge).split("->", 1) if end)
    return sorted(names)


def paths_of(paths: Any, services: list[str]) -> PathTimes:
    """The places of a column of `requests.Path`; an edge's time is its callee's, and its caller's for the half."""
    places, request = _fields(paths)
    code = {name: index for index, name in enumerate(services)}
    own = _coded(places.field("service"), lambda name: code.get(name, -1))
    edges = places.field("edge")
    caller = _coded(edges, lambda edge: code.get(edge.split("->", 1)[0], -1) if "->" in edge else -1)
    callee = _coded(edges, lambda edge: code.get(edge.split("->", 1)[1], -1) if "->" in edge else -1)
    is_edge = callee >= 0
    return PathTimes(
        request,
        np.where(is_edge, callee, own),
        np.where(is_edge, caller, own),
        places.field("ns").to_numpy(zero_copy_only=False).astype(np.float64),
        len(services),
    )


def _coded(column: Any, meaning: Any) -> Any:
    encoded = column.cast(pa.string()).dictionary_encode()
    table = np.array([meaning(text or "") for text in encoded.dictionary.to_pylist()] or [-1], np.int64)
    return table[encoded.indices.to_numpy(zero_copy_only=False)]

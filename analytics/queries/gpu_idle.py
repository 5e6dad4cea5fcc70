"""The GPU is idle while requests wait: what is it waiting for, second by second?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.verdicts.idle import (
    Cell,
    GpuSeries,
    attribute,
    bound_causes,
    busy_shares,
    cells,
    timeline,
    waiting_causes,
)  # fmt: skip
from tailtrace.analytics.verdicts.observed import Observed
from tailtrace.analytics.verdicts.read import observe, root_requests
from tailtrace.ingest.store import Store

MAX_STRETCHES: Final = 2_000
TIMELINE_CELLS: Final = 60
_METRICS: Final = ("hw.gpu.utilization", "tailtrace.gpu.dram_active", "tailtrace.gpu.sm_active")
_SERIES: Final = """
SELECT gpu, at, mapFromArrays(groupArray(metric), groupArray(value)) AS readings FROM (
  SELECT Attributes['hw.id'] AS gpu, toUnixTimestamp64Nano(TimeUnix) AS at, MetricName AS metric, avg(Value) AS value
  FROM {table} WHERE MetricName IN {names:Array(String)}
    AND TimeUnix > fromUnixTimestamp64Nano({since:Int64}, 'UTC') - INTERVAL 2 MINUTE
    AND TimeUnix <= fromUnixTimestamp64Nano({until:Int64}, 'UTC') + INTERVAL 2 MINUTE
    AND has({gpus:Array(String)}, Attributes['hw.id'])
    AND Attributes['tailtrace.reason'] NOT IN ('sw_power_cap', 'sync_boost')
  GROUP BY gpu, at, metric)
GROUP BY gpu, at ORDER BY gpu, at LIMIT 500000
"""


@dataclass(frozen=True, slots=True)
class IdleTotal:
    """GPU time in one state for one cause; shares of `gpu_ns`."""

    state: str
    cause: str
    ns: int
    share: float


@dataclass(frozen=True, slots=True)
class GpuStretch:
    """One GPU in one state for one cause."""

    gpu: str
    replica: str
    state: str
    cause: str
    start_unix_ns: str
    duration_ns: int


@dataclass(frozen=True, slots=True)
class GpuLane:
    """One GPU over the window, at most 60 equal cells."""

    gpu: str
    replica: str
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class GpuIdle:
    """`totals` sum to `gpu_ns` = GPUs x window. A stretch shows the state that had most of its cells of `cell_ns`.
    `stretches` holds the first `stretches_shown` of `stretches_total`; `lanes` is the same, coarser, for every GPU.
    """

    service: str
    since_unix_ns: str
    until_unix_ns: str
    cell_ns: int
    gpus: int
    gpu_ns: int
    totals: list[IdleTotal]
    lanes: list[GpuLane]
    stretches: list[GpuStretch]
    stretches_total: int
    stretches_shown: int
    missing: list[str]


def gpu_idle(store: Store, service: str, since_ns: int, until_ns: int) -> GpuIdle:
    """Every GPU that served the service in [since, until), or served it in the hour before."""
    seen = observe(store, service, since_ns, until_ns)
    earlier = observe(store, service, since_ns - 3_600_000_000_000, since_ns, counters=False)
    groups = {uuids: replica for replica, uuids in {**earlier.gpus, **seen.gpus}.items() if uuids}
    edges = cells(since_ns, until_ns)
    series = _series(store, [gpu for uuids in groups for gpu in uuids], since_ns, until_ns)
    requests = root_requests(store, sorted({*earlier.gpus, *seen.gpus}), since_ns, until_ns)
    busy: dict[str, Any] = {}
    bound: dict[str, Any] = {}
    waits: dict[str, Any] = {}
    for uuids in groups:
        names = [name for name, own in {**earlier.gpus, **seen.gpus}.items() if own == uuids]
        mine = (
            np.isin(np.array(requests.replicas, dtype=object)[requests.replica], names)
            if len(requests)
            else np.zeros(0, bool)
        )
        steps = (
            seen.steps.where(np.isin(np.array(seen.steps.replicas or ("",), dtype=object)[seen.steps.replica], names))
            if len(seen.steps)
            else seen.steps
        )
        startups = [one for one in seen.startups if one.replica in names]
        waiting = waiting_causes(edges, requests.where(mine), startups)
        cut = [gpu for gpu in uuids if gpu in series and np.nanmax(series[gpu].throttled, initial=0.0) > 0.05]
        for gpu in uuids:
            busy[gpu] = busy_shares(edges, series.get(gpu), steps)
            bound[gpu] = bound_causes(edges, series.get(gpu), steps, slow=0 < len(cut) < len(uuids))
            waits[gpu] = waiting
    totals, stretches = attribute(edges, busy, bound, waits)
    by_state: dict[tuple[str, str], int] = defaultdict(int)
    for (_, state, cause), ns in totals.items():
        by_state[state, cause] += ns
    whole = len(busy) * (until_ns - since_ns)
    owner = {gpu: replica for uuids, replica in groups.items() for gpu in uuids}
    return GpuIdle(
        service, str(since_ns), str(until_ns), int(edges[1] - edges[0]), len(busy), whole,
        [IdleTotal(s, c, ns, ns / whole) for (s, c), ns in sorted(by_state.items(), key=lambda item: -item[1])],
        [GpuLane(gpu, owner[gpu], timeline(edges, busy[gpu], bound[gpu], waits[gpu], TIMELINE_CELLS)) for gpu in busy],
        [GpuStretch(one.gpu, owner[one.gpu], one.state, one.cause, str(one.start_ns), one.end_ns - one.start_ns)
         for one in stretches[:MAX_STRETCHES]],
        len(stretches), min(len(stretches), MAX_STRETCHES), _missing(seen, series),
    )  # fmt: skip


def _missing(seen: Observed, series: dict[str, GpuSeries]) -> list[str]:
    out = [] if series else ["GPU counters"]
    if series and not any(np.isfinite(one.dram).any() for one in series.values()):
        out.append("GPM counters: what binds a busy GPU is unknown")
    return out if len(seen.steps) else [*out, "engine steps"]


def _series(store: Store, gpus: list[str], since_ns: int, until_ns: int) -> dict[str, GpuSeries]:
    if not gpus:
        return {}
    parameters = {"since": since_ns, "until": until_ns, "gpus": gpus}
    rows: dict[str, list[tuple[int, dict[str, float]]]] = defaultdict(list)
    sql = _SERIES.replace("{table}", "otel_metrics_gauge")
    for row in store.query(sql, {**parameters, "names": list(_METRICS)}, role="ui"):
        rows[row["gpu"]].append((int(row["at"]), dict(row["readings"])))
    cut: dict[str, list[tuple[int, float]]] = defaultdict(list)
    sql = _SERIES.replace("{table}", "otel_metrics_sum").replace("avg(Value)", "sum(Value)")
    for row in store.query(sql, {**parameters, "names": ["tailtrace.gpu.throttle"]}, role="ui"):
        cut[row["gpu"]].append((int(row["at"]), float(dict(row["readings"])["tailtrace.gpu.throttle"])))
    return {gpu: _one(found, cut.get(gpu, [])) for gpu, found in rows.items()}


def _one(rows: list[tuple[int, dict[str, float]]], cut: list[tuple[int, float]]) -> GpuSeries:
    at = np.array([when for when, _ in rows], np.int64)

    def column(name: str) -> Any:
        return np.array([values.get(name, np.nan) for _, values in rows], np.float64)

    throttled = np.zeros(len(at))
    if len(cut) > 1:
        times, sums = np.array([when for when, _ in cut], np.int64), np.array([value for _, value in cut])
        rates = np.maximum(np.diff(sums), 0) / np.maximum(np.diff(times), 1)
        throttled = rates[np.clip(np.searchsorted(times[1:], at, side="left"), 0, len(rates) - 1)]
    return GpuSeries(at, column("hw.gpu.utilization"), column("tailtrace.gpu.dram_active"),
                     column("tailtrace.gpu.sm_active"), throttled)  # fmt: skip

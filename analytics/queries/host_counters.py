"""Counters of hosts as lanes: event loops, threads, waiting for a CPU, network. What starves a GPU is often here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tailtrace.analytics.queries.counters import Lanes, lane_of, rates_of
from tailtrace.ingest.store import Store

# lane -> (metric, unit, scale of a rate or None for a gauge)
METRICS: Final[dict[str, tuple[str, str, float | None]]] = {
    "loop_lag": ("tailtrace.host.loop.lag", "s", None),
    "loop_lost": ("tailtrace.host.loop.lost", "1", 1e-9),
    "threads": ("tailtrace.host.thread.cpu", "1", 1e-9),
    "run_queue": ("tailtrace.host.process.run_queue", "1", 1e-9),
    "quota": ("tailtrace.host.cgroup.throttled", "1", 1e-9),
    "retransmits": ("tailtrace.host.tcp.retransmits", "/s", 1.0),
    "network": ("tailtrace.host.network.io", "By/s", 1.0),
}
_SPLIT: Final = (
    "service.name", "process.executable.name", "thread.name", "tailtrace.cause", "tailtrace.stat",
    "network.io.direction",
)  # fmt: skip
# A series is a full set of attributes, so that counters of two threads of one name do not mix.
_POINTS: Final = """
SELECT MetricName AS metric, ResourceAttributes['host.name'] AS host,
  cityHash64(Attributes, ResourceAttributes) AS series,
  arrayStringConcat(arrayFilter(v -> v != '', arrayMap(k -> Attributes[k], {split:Array(String)})), ' ') AS line,
  intDiv(toUnixTimestamp64Nano(TimeUnix), {step:Int64}) * {step:Int64} AS at, max(Value) AS value
FROM {table}
WHERE MetricName IN {names:Array(String)} AND has({hosts:Array(String)}, ResourceAttributes['host.id'])
  AND TimeUnix >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')
  AND TimeUnix <= fromUnixTimestamp64Nano({until:Int64}, 'UTC')
GROUP BY metric, host, series, line, at ORDER BY metric, host, series, at LIMIT 200000
"""
_MOST_THREADS: Final = 8


def hosts_of(store: Store, service: str, since_ns: int, until_ns: int) -> list[str]:
    """Ids of the hosts that served a service."""
    sql = (
        "SELECT DISTINCT HostId AS host FROM requests WHERE HostId != '' AND Service = {service:String}"
        " AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')"
        " AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC') LIMIT 1000"
    )
    rows = store.query(sql, {"service": service, "since": since_ns, "until": until_ns}, role="ui")
    return sorted(row["host"] for row in rows)


def host_lanes(store: Store, hosts: Sequence[str], since_ns: int, until_ns: int, step_ns: int) -> Lanes:
    """Readings by host, process, thread or cause; sums as rates a second, CPU time as cores. Of threads only the
    busiest.
    """
    found: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    values: dict[str, Any] = {
        "hosts": list(hosts), "split": list(_SPLIT), "since": since_ns, "until": until_ns, "step": max(1, step_ns),
        "names": [metric for metric, *_ in METRICS.values()],
    }  # fmt: skip
    several = len(hosts) > 1
    for table in ("otel_metrics_gauge", "otel_metrics_sum") if hosts else ():
        for row in store.query(_POINTS.replace("{table}", table), values, role="ui"):
            name = " ".join(part for part in (row["host"] if several else "", row["line"]) if part)
            found[row["metric"], name][str(row["series"])].append((int(row["at"]), float(row["value"])))
    lanes = []
    for lane, (metric, unit, scale) in METRICS.items():
        lines = {
            name: _together([rates_of(points, scale) if scale else points for points in series.values()])
            for (own, name), series in found.items()
            if own == metric
        }
        if lane == "threads":
            busiest = sorted(lines, key=lambda name: -sum(value for _, value in lines[name]))[:_MOST_THREADS]
            lines = {name: lines[name] for name in busiest}
        made = lane_of(lane, unit, {name: points for name, points in lines.items() if points})
        if made.lines:
            lanes.append(made)
    return Lanes(str(since_ns), str(until_ns), lanes, {})


def _together(series: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    """Series of one name, summed by moment: the threads of a pool."""
    summed: dict[int, float] = defaultdict(float)
    for points in series:
        for at, value in points:
            summed[at] += value
    return sorted(summed.items())

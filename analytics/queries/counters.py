"""Counters of GPUs, links and hosts, and the steps of engines, as lanes over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.ingest.store import Store

MOST_LINES: Final = 16


@dataclass(frozen=True, slots=True)
class Line:
    """Readings of one source. `name` says of which (a GPU, a direction, a thread)."""

    name: str
    times_unix_ns: list[str]
    values: list[float]


@dataclass(frozen=True, slots=True)
class Lane:
    """One quantity. `age_ns` is the median time between readings: nothing shorter can be seen in it. `left_out` lines
    were not read.
    """

    lane: str
    unit: str
    age_ns: int | None
    lines: list[Line]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Lanes:
    """`absent` names the lanes that have no reading, with the sampler's reason where it gave one."""

    since_unix_ns: str
    until_unix_ns: str
    lanes: list[Lane]
    absent: dict[str, str]


# lane -> (metric, unit, whether it is a sum, the link it is of)
METRICS: Final[dict[str, tuple[str, str, bool, str]]] = {
    "gpu_busy": ("hw.gpu.utilization", "1", False, ""),
    "sm_active": ("tailtrace.gpu.sm_active", "1", False, ""),
    "dram_active": ("tailtrace.gpu.dram_active", "1", False, ""),
    "gpu_memory": ("hw.gpu.memory.utilization", "1", False, ""),
    "pcie": ("tailtrace.link.bandwidth", "By/s", False, "pcie"),
    "nvlink": ("tailtrace.link.bandwidth", "By/s", False, "nvlink"),
    "sm_clock": ("tailtrace.gpu.clock.sm", "Hz", False, ""),
    "power": ("hw.power", "W", False, ""),
    "throttled": ("tailtrace.gpu.throttle", "1", True, ""),
}

_GAUGE: Final = """
SELECT MetricName AS metric, Attributes['hw.id'] AS gpu, Attributes['tailtrace.link'] AS link,
  arrayStringConcat(arrayFilter(v -> v != '', arrayMap(k -> Attributes[k], {split:Array(String)})), ' ') AS line,
  intDiv(toUnixTimestamp64Nano(TimeUnix), {step:Int64}) * {step:Int64} AS at, avg(Value) AS value
FROM otel_metrics_gauge
WHERE MetricName IN {names:Array(String)} AND has({gpus:Array(String)}, Attributes['hw.id'])
  AND TimeUnix >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')
  AND TimeUnix <= fromUnixTimestamp64Nano({until:Int64}, 'UTC')
GROUP BY metric, gpu, link, line, at ORDER BY metric, gpu, link, line, at LIMIT 200000
"""
_SUM: Final = _GAUGE.replace("otel_metrics_gauge", "otel_metrics_sum").replace("avg(Value)", "max(Value)")
_STEPS: Final = """
SELECT EngineId AS engine, intDiv(toUnixTimestamp64Nano(Time), {step:Int64}) * {step:Int64} AS at,
  avg(Running) AS running, avg(Waiting) AS waiting, avg(KvUsage) AS kv, max(DurationNs) AS longest,
  sum(ifNull(PrefillTokens, 0)) AS prefill, sum(ifNull(DecodeTokens, 0)) AS decode, count() AS n
FROM engine_steps
WHERE ({service:String} = '' OR Service = {service:String}) AND ({engine:String} = '' OR EngineId = {engine:String})
  AND Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
GROUP BY engine, at ORDER BY engine, at LIMIT 100000
"""
_ABSENT: Final = """
SELECT Attributes['tailtrace.metric'] AS metric, argMax(Attributes['tailtrace.reason'], TimeUnix) AS reason
FROM otel_metrics_gauge WHERE MetricName = 'tailtrace.absent'
  AND TimeUnix >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') - INTERVAL 2 HOUR
  AND TimeUnix <= fromUnixTimestamp64Nano({until:Int64}, 'UTC') GROUP BY metric LIMIT 1000
"""


def gpu_lanes(store: Store, gpus: Sequence[str], since_ns: int, until_ns: int, step_ns: int) -> Lanes:
    """Readings of GPUs and their links, averaged over `step_ns`; sums as rates a second."""
    values = {
        "names": [metric for metric, *_ in METRICS.values()],
        "gpus": list(gpus),
        "split": ["network.io.direction", "tailtrace.reason"],
        "step": max(1, step_ns),
        "since": since_ns,
        "until": until_ns,
    }
    readings: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    for sql, rate in ((_GAUGE, False), (_SUM, True)):
        for row in store.query(sql, values, role="ui"):
            name = " ".join(part for part in (_short(row["gpu"]), row["line"]) if part)
            readings[row["metric"] + ("#" if rate else ""), row["link"], name].append(
                (int(row["at"]), float(row["value"]))
            )
    lanes = []
    for lane, (metric, unit, rate, link) in METRICS.items():
        kind = (metric + ("#" if rate else ""), link)
        lines = {name: points for (*key, name), points in readings.items() if tuple(key) == kind}
        if rate:
            per_second = 1e-9 if unit == "1" else 1.0  # a throttle counter is ns: its rate is a share of time
            lines = {name: rates_of(points, per_second) for name, points in lines.items()}
        made = lane_of(lane, unit, lines)
        if made.lines:
            lanes.append(made)
    said = {row["metric"].split("/")[0]: row["reason"] for row in store.query(_ABSENT, values, role="ui")}
    seen = {one.lane for one in lanes}
    absent = {lane: said.get(metric, "") for lane, (metric, *_) in METRICS.items() if lane not in seen}
    return Lanes(str(since_ns), str(until_ns), lanes, absent)


def step_lanes(
    store: Store, since_ns: int, until_ns: int, step_ns: int, *, service: str = "", engine: str = ""
) -> Lanes:
    """What engines had to do: sequences running and waiting, KV cache in use, tokens a second, longest step."""
    values = {"service": service, "engine": engine, "step": max(1, step_ns), "since": since_ns, "until": until_ns}
    lines: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in store.query(_STEPS, values, role="ui"):
        name, at = row["engine"].split("/", 1)[-1] if not engine else "", int(row["at"])
        for lane, value in (
            ("running", row["running"]),
            ("waiting", row["waiting"]),
            ("kv_usage", row["kv"]),
            ("step_time", row["longest"] / 1e9),
        ):
            if value is not None:
                lines[lane][name].append((at, float(value)))
        for lane in ("prefill", "decode"):
            lines["tokens"][f"{name} {lane}".strip()].append((at, row[lane] * 1e9 / max(1, step_ns)))
    units = {"running": "", "waiting": "", "kv_usage": "1", "tokens": "/s", "step_time": "s"}
    lanes = [lane_of(lane, unit, lines[lane]) for lane, unit in units.items() if lines[lane]]
    return Lanes(str(since_ns), str(until_ns), lanes, {})


def lane_of(lane: str, unit: str, lines: dict[str, list[tuple[int, float]]]) -> Lane:
    """Points (Unix ns, value) of named lines as a lane."""
    kept = sorted(lines)[:MOST_LINES]
    ages = sorted(
        later[0] - earlier[0] for name in kept for earlier, later in zip(lines[name], lines[name][1:], strict=False)
    )
    made = [Line(name, [str(at) for at, _ in lines[name]], [value for _, value in lines[name]]) for name in kept]
    return Lane(lane, unit, ages[len(ages) // 2] if ages else None, made, len(lines) - len(kept))


def rates_of(points: Iterable[tuple[int, float]], scale: float) -> list[tuple[int, float]]:
    """Differences over time; a counter that went back began anew."""
    found = []
    before: tuple[int, float] | None = None
    for at, value in points:
        if before is not None and value >= before[1] and at > before[0]:
            found.append((at, (value - before[1]) * 1e9 / (at - before[0]) * scale))
        before = (at, value)
    return found


def _short(uuid: str) -> str:
    """`GPU-9e8c539e`: enough to tell GPUs apart."""
    return uuid[:12]


def gpus_of(store: Store, service: str, since_ns: int, until_ns: int) -> list[str]:
    """UUIDs of the GPUs that served a service (every service where it is empty)."""
    sql = (
        "SELECT DISTINCT GpuUuids AS uuids FROM requests WHERE GpuUuids != ''"
        " AND ({service:String} = '' OR Service = {service:String})"
        " AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')"
        " AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
    )
    rows: list[dict[str, Any]] = store.query(sql, {"service": service, "since": since_ns, "until": until_ns}, role="ui")
    return sorted({uuid for row in rows for uuid in row["uuids"].split(",") if uuid})

"""Reads what the rules look at from the store: rows of `requests`, engine steps, and counters of the hosts involved."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace.analytics.verdicts.observed import STAGES, Counters, Observed, Requests, Startup, Steps
from tailtrace.ingest.store import Role, Store
from tailtrace.stages import REQUEST_STAGES

MAX_REQUESTS: Final = 50_000
MAX_STEPS: Final = 100_000
AFTER_NS: Final = 600_000_000_000
# Counters of things that began in the window are compared with the reading just before it.
_READ_BEFORE_NS: Final = 15_000_000_000

_STAGE_COLUMNS: Final = (*(stage.column for stage in REQUEST_STAGES), "Unexplained")
_KEYS: Final = "TraceId, SpanId, Start, Kind, Replica, HostId, GpuUuids, Outcome, Revision"
_WHERE: Final = (
    " FROM requests WHERE {whose}"
    " AND toStartOfMinute(End) >= toStartOfMinute(fromUnixTimestamp64Nano({since:Int64}, 'UTC'))"
    " AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')"
    " AND Start < fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
    " AND End < fromUnixTimestamp64Nano({until:Int64} + {after:Int64}, 'UTC')"
)
# As stored: carrying seventy columns through a GROUP BY takes the engine three times as long as reading them.
_REQUESTS: Final = (
    f"SELECT cityHash64(TraceId) AS TraceHash, cityHash64({_KEYS}) AS RowHash, Sign,"
    " toUnixTimestamp64Nano(Start) AS StartNs, Kind, Replica, HostId, GpuUuids, Outcome, DurationNs AS D, TtftNs AS T,"
    " InputTokens AS I, OutputTokens AS O, CachedTokens AS C, ClientRttNs AS R, Streaming AS S, "
    + ", ".join(f"{column}Ns AS {column}W, {column}TtftNs AS {column}F" for column in _STAGE_COLUMNS)
    + _WHERE
)
_LIMIT: Final = " LIMIT {limit:UInt64} + 1"
_GREATEST_HASH: Final = (1 << 64) - 1
_UP_TO: Final = " AND cityHash64(TraceId) <= {last:UInt64}"
# Where the sample ends, by the hash of its traces.
_LAST: Final = (
    f"SELECT last FROM (SELECT any(cityHash64(TraceId)) AS last{_WHERE}"
    f" GROUP BY cityHash64({_KEYS}) HAVING sum(Sign) > 0) ORDER BY last LIMIT 1 OFFSET {{limit:UInt64}} - 1"
)
_OF_SERVICE: Final = "Service = {service:String}"
_OF_REPLICAS: Final = "IsRoot AND has({replicas:Array(String)}, Replica)"
_STEPS: Final = """
SELECT toUnixTimestamp64Nano(Time) AS StartNs, DurationNs, Replica, Running, Waiting, WaitingCapacity, PrefillTokens,
  DecodeTokens, length(Preempted) AS Preempted, KvUsage, GpuNs,
  toFloat64OrDefault(Attributes['tailtrace.sample_weight'], toFloat64(1)) AS Weight
FROM engine_steps
WHERE Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND has({replicas:Array(String)}, Replica)
ORDER BY cityHash64(StartNs) LIMIT {limit:UInt64}
"""
_FRONT_HOSTS: Final = """
SELECT DISTINCT Attributes['host.id'] AS host FROM resources
WHERE Attributes['service.name'] = {service:String} AND host != '' LIMIT 1000
"""
_THING: Final = "if(Attributes['hw.id'] != '', Attributes['hw.id'], ResourceAttributes['host.id'])"
# What tells the readings of one thing apart, in one text.
_KEY: Final = (
    "concat(Attributes['tailtrace.reason'], Attributes['tailtrace.link'], Attributes['tailtrace.cause'],"
    " Attributes['tailtrace.namespace'],"
    " Attributes['thread.name'], Attributes['tailtrace.kind'], Attributes['tailtrace.stat'],"
    " Attributes['tailtrace.cgroup'],"
    " if(Attributes['error.type'] = '', '', Attributes['error.type']),"
    " if(Attributes['network.io.direction'] = '', '', concat('.', Attributes['network.io.direction'])))"
)
_OF_THINGS: Final = """
 FROM {table} WHERE MetricName IN {names:Array(String)}
  AND TimeUnix > fromUnixTimestamp64Nano({since:Int64}, 'UTC')
  AND TimeUnix <= fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND (has({things:Array(String)}, Attributes['hw.id']) OR has({things:Array(String)}, ResourceAttributes['host.id']))
"""
_GAUGES: Final = (
    f"SELECT MetricName AS metric, {_THING} AS thing, {_KEY} AS key, avg(Value) AS value"
    + _OF_THINGS.replace("{table}", "otel_metrics_gauge")
    + " GROUP BY metric, thing, key LIMIT 50000"
)
_SUMS: Final = (
    "SELECT metric, thing, key, sum(grown) AS grown, sum(seconds) AS seconds FROM ("
    f"SELECT MetricName AS metric, {_THING} AS thing, {_KEY} AS key,"
    " greatest(0, argMax(Value, TimeUnix) - argMin(Value, TimeUnix)) AS grown,"
    " (toUnixTimestamp64Nano(max(TimeUnix)) - toUnixTimestamp64Nano(min(TimeUnix))) / 1e9 AS seconds"
    + _OF_THINGS.replace("{table}", "otel_metrics_sum")
    + " GROUP BY metric, thing, key, Attributes, StartTimeUnix HAVING seconds > 0"
    ") GROUP BY metric, thing, key LIMIT 50000"
)
GAUGES: Final = (
    "hw.gpu.utilization", "hw.power", "tailtrace.gpu.power.limit", "tailtrace.gpu.clock.sm",
    "tailtrace.gpu.graphics_active", "tailtrace.gpu.sm_active", "tailtrace.gpu.tensor_active",
    "tailtrace.gpu.dram_active", "tailtrace.link.bandwidth", "tailtrace.link.limit", "tailtrace.link.active",
    "tailtrace.host.loop.lag", "tailtrace.host.loop.cpu", "tailtrace.gpu.processes",
)  # fmt: skip
SUMS: Final = (
    "tailtrace.gpu.throttle", "hw.errors", "tailtrace.link.replays", "tailtrace.host.process.run_queue",
    "tailtrace.host.process.cpu", "tailtrace.host.thread.cpu", "tailtrace.host.cgroup.throttled",
    "tailtrace.host.tcp.retransmits", "tailtrace.host.tcp.segments", "tailtrace.host.loop.lost",
)  # fmt: skip


def observe(
    store: Store,
    service: str,
    since_ns: int,
    until_ns: int,
    *,
    after_ns: int = AFTER_NS,
    counters: bool = True,
    role: Role = "jobs",
) -> Observed:
    """A service in [since, until): requests that started in it (and ended at most `after_ns` later), the steps of the
    replicas that served them, and counters of the GPUs and hosts they ran on.
    """
    bounds = {"since": since_ns, "until": until_ns}
    table = _rows(store, _OF_SERVICE, {**bounds, "service": service, "after": after_ns}, role)
    startups = tuple(
        Startup(row["Replica"], int(row["StartNs"]), int(row["StartNs"]) + int(row["D"]))
        for row in table.filter(pc.equal(table["Kind"], "startup")).to_pylist()
    )
    starts = table["StartNs"].to_numpy()
    asked = pc.equal(table["Kind"], "request").to_numpy() & (starts >= since_ns) & (starts < until_ns)
    if not asked.all():
        table = table.filter(pa.array(asked))
    gpus = {
        row["Replica"]: tuple(part for part in row["GpuUuids"].split(",") if part)
        for row in table.select(["Replica", "GpuUuids"]).group_by(["Replica", "GpuUuids"]).aggregate([]).to_pylist()
    }
    hosts = sorted(
        {host for host in table["HostId"].unique().to_pylist() if host}
        | {row["host"] for row in store.query(_FRONT_HOSTS, {"service": service}, role=role)}
    )
    replicas = tuple(sorted(gpus))
    things = [*hosts, *(uuid for uuids in gpus.values() for uuid in uuids)]
    return Observed(
        since_ns, until_ns, _requests(table, replicas), _steps(store, bounds, replicas, role),
        read_counters(store, since_ns, until_ns, things if counters else [], role), startups, gpus, tuple(hosts),
    )  # fmt: skip


def root_requests(store: Store, replicas: list[str], since_ns: int, until_ns: int) -> Requests:
    """What clients asked of these replicas, as seen where it came in: all that ran in [since, until)."""
    parameters = {"since": since_ns, "until": until_ns, "after": AFTER_NS, "replicas": replicas}
    return _requests(_rows(store, _OF_REPLICAS, parameters, "jobs"), tuple(replicas))


def read_counters(store: Store, since_ns: int, until_ns: int, things: list[str], role: Role = "jobs") -> Counters:
    """Readings of GPUs and hosts over a window."""
    if not things:
        return Counters()
    readings: dict[tuple[str, str, str], float] = {}
    parameters: dict[str, Any] = {"since": since_ns, "until": until_ns, "things": things}
    for row in store.query(_GAUGES, {**parameters, "names": list(GAUGES)}, role=role):
        readings[row["metric"], row["thing"], row["key"]] = float(row["value"])
    parameters["since"] = since_ns - _READ_BEFORE_NS
    for row in store.query(_SUMS, {**parameters, "names": list(SUMS)}, role=role):
        readings[row["metric"], row["thing"], row["key"]] = float(row["grown"]) / float(row["seconds"])
    # Sums are per second; those in ns become shares of the time.
    for key in readings:
        if key[0].endswith((".throttle", ".run_queue", ".cpu", ".throttled", ".lost")) and key[0] in SUMS:
            readings[key] /= 1e9
    return Counters(readings, 1.0 if readings else 0.0)


def _rows(store: Store, whose: str, parameters: dict[str, Any], role: Role) -> pa.Table:
    """Rows of requests, each once and none that a later one takes back, by the hash of their trace; of more than
    MAX_REQUESTS the first by that order, which is a sample.
    """
    read, sampled = _REQUESTS.replace("{whose}", whose), {**parameters, "limit": MAX_REQUESTS}
    table = store.query_arrow(read + _LIMIT, sampled, role=role)
    if table.num_rows > MAX_REQUESTS:
        ends = store.query_arrow(_LAST.replace("{whose}", whose), sampled, role=role)
        last = ends["last"][0].as_py() if ends.num_rows else _GREATEST_HASH
        table = store.query_arrow(read + _UP_TO, {**parameters, "last": last}, role=role)
    return table.take(pa.array(_standing(table)[:MAX_REQUESTS])).combine_chunks()


def _standing(table: pa.Table) -> Any:
    """Places of the rows that stand. A row that a later span re-opened comes as (-old, +new): what is taken back sums
    to nothing.
    """
    _, first, row = np.unique(table["RowHash"].to_numpy(), return_index=True, return_inverse=True)
    first = first[np.bincount(row, table["Sign"].to_numpy(), len(first)) > 0]
    return first[np.argsort(table["TraceHash"].to_numpy()[first], kind="stable")]


def _requests(table: pa.Table, replicas: tuple[str, ...]) -> Requests:
    def floats(name: str) -> Any:
        return table[name].cast(pa.float64()).to_numpy().astype(np.float64)

    whole = np.stack([floats(f"{column}W") for column in _STAGE_COLUMNS], axis=1) if len(STAGES) else np.zeros((0, 0))
    first = np.stack([floats(f"{column}F") for column in _STAGE_COLUMNS], axis=1)
    ttft = floats("T")
    first[np.isnan(ttft)] = np.nan
    index = {name: k for k, name in enumerate(replicas)}
    named = pa.concat_arrays(table["Replica"].chunks or [pa.array([], pa.string())]).dictionary_encode()
    return Requests(
        start_ns=table["StartNs"].to_numpy().astype(np.int64),
        duration_ns=floats("D"),
        ttft_ns=ttft,
        whole=whole,
        first=first,
        input_tokens=floats("I"),
        output_tokens=floats("O"),
        cached_tokens=floats("C"),
        client_rtt_ns=floats("R"),
        streamed=np.isfinite(ttft) & pc.not_equal(table["S"], "false").to_numpy(),
        ok=pc.equal(table["Outcome"], "ok").to_numpy(),
        replica=np.array([index[one] for one in named.dictionary.to_pylist()], np.int64)[named.indices.to_numpy()],
        replicas=replicas,
    )


def _steps(store: Store, bounds: dict[str, int], replicas: tuple[str, ...], role: Role) -> Steps:
    parameters = {**bounds, "replicas": list(replicas), "limit": MAX_STEPS}
    table = store.query_arrow(_STEPS, parameters, role=role)
    index = {name: k for k, name in enumerate(replicas)}

    def floats(name: str) -> Any:
        return table[name].cast(pa.float64()).to_numpy().astype(np.float64)

    return Steps(
        start_ns=table["StartNs"].to_numpy().astype(np.int64),
        duration_ns=floats("DurationNs"),
        weight=np.maximum(floats("Weight"), 1.0),
        replica=np.array([index[one] for one in table["Replica"].to_pylist()], np.int64),
        replicas=replicas,
        running=floats("Running"),
        waiting=floats("Waiting"),
        waiting_capacity=floats("WaitingCapacity"),
        prefill_tokens=floats("PrefillTokens"),
        decode_tokens=floats("DecodeTokens"),
        preempted=floats("Preempted"),
        kv_usage=floats("KvUsage"),
        gpu_ns=floats("GpuNs"),
    )

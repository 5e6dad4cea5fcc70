"""What stood around one request: who shared its engine, where it ranks among its like, what the median of them does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from tailtrace.analytics.queries import linked_batches
from tailtrace.analytics.queries.counters import Lanes, gpu_lanes, step_lanes
from tailtrace.analytics.queries.host_counters import host_lanes
from tailtrace.analytics.queries.percentiles import percentile_of_buckets
from tailtrace.analytics.queries.stage_shares import ROLLUP_COLUMNS
from tailtrace.analytics.queries.trace_id import trace_id as checked
from tailtrace.analytics.queries.window import DAY_NS
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store
from tailtrace.stages import REQUEST_STAGES, UNEXPLAINED

MOST: Final = 30
_MARGIN: Final = 0.1
_LEAST_MARGIN_NS: Final = 2_000_000_000
_POINTS: Final = 400


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A request on the same engine at the same time; `overlap_ns` of it during this one."""

    trace_id: str
    request_id: str
    start_unix_ns: str
    duration_ns: int
    overlap_ns: int
    input_tokens: int | None
    output_tokens: int | None
    prefill_ns: int


@dataclass(frozen=True, slots=True)
class StageAgainst:
    """This request's time in a stage against the median of its like."""

    stage: str
    own_ns: int
    median_ns: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A gap between chunks, from the request's start. `cause` is of the cause vocabulary, empty where no step of the
    engine tells; `request_id` is whose work it was, where one did most of it.
    """

    offset_ns: int
    length_ns: int
    cause: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """`rank` is the share of like requests (same service and stratum, in the day before its end) that were faster;
    null below 20 of them. `gaps` are (upper bound ns, count) of times between chunks, with their P50 and P95.
    """

    trace_id: str
    span_id: str
    engine_id: str
    start_unix_ns: str
    duration_ns: int
    ttft_ns: int | None
    last_token_ns: int | None
    output_tokens: int | None
    gaps: list[tuple[int, int]]
    gap_percentiles_ns: tuple[int | None, int | None]
    stalls: list[Stall]
    like: int
    rank: float | None
    median_ns: int | None
    stages: list[StageAgainst]
    neighbours: list[Neighbour]
    neighbours_total: int
    steps: Lanes
    counters: Lanes
    hosts: Lanes


_OWN: Final = (
    "SELECT SpanId, Service, Engine, EngineId, HostId, RequestId, EngineRequestId, GpuUuids, Stratum,"
    " toUnixTimestamp64Nano(Start) AS start,"
    " DurationNs AS duration,"
    " TtftNs AS ttft, LastTokenNs AS last, OutputTokens AS output, Gaps AS gaps, Stalls AS stalls, "
    + ", ".join(ROLLUP_COLUMNS)
    + " FROM requests WHERE TraceId = {trace:String} AND Sign = 1 ORDER BY SpanId = {span:String} DESC, IsRoot DESC,"
    " Revision DESC LIMIT 1"
)
_LIKE: Final = (
    "SELECT sum(Sign) AS n, sumIf(Sign, DurationNs < {duration:UInt64}) AS faster,"
    " quantileExact(0.5)(DurationNs) AS median, "
    + ", ".join(f"quantileExact(0.5)({column}) AS {column}" for column in ROLLUP_COLUMNS)
    + " FROM requests WHERE Service = {service:String} AND Stratum = {stratum:UInt64} AND Outcome = 'ok' AND Sign = 1"
    " AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND End <= fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
)
_NEIGHBOURS: Final = (
    "SELECT TraceId, any(RequestId) AS RequestId, toUnixTimestamp64Nano(min(Start)) AS start,"
    " max(DurationNs) AS duration,"
    " any(InputTokens) AS input, any(OutputTokens) AS output, max(PrefillNs) AS prefill FROM requests"
    " WHERE EngineId = {engine:String} AND TraceId != {trace:String} AND Sign = 1"
    " AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')"
    " AND End <= fromUnixTimestamp64Nano({until:Int64}, 'UTC') + INTERVAL 10 MINUTE"
    " AND Start <= fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
    " GROUP BY TraceId LIMIT 2000"
)
_IN_BATCHES: Final = _NEIGHBOURS.replace(
    "EngineId = {engine:String}", f"Kind = 'request' AND TraceId IN ({linked_batches.OTHERS})"
)

_EXPLAINS: Final = 0.5  # of a stall, so that the steps in it count as its cause
_STALL_STEPS: Final = """
SELECT toUnixTimestamp64Nano(Time) AS at, DurationNs AS ns, PrefillTokens AS prefill, PrefillRequests AS who,
  PrefillRequestTokens AS tokens, Preempted AS preempted
FROM engine_steps WHERE EngineId = {engine:String}
  AND Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') - INTERVAL 5 SECOND
  AND Time <= fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND (length(Preempted) > 0 OR PrefillTokens > 0)
ORDER BY at LIMIT 20000
"""


def neighbourhood(store: Store, trace_id: str, *, span_id: str = "") -> Neighbourhood:
    """Raises Rejected for a malformed id, NotFound where the trace is not judged yet."""
    trace = checked(trace_id)
    rows = store.query(_OWN, {"trace": trace, "span": span_id}, role="ui")
    if not rows:
        raise NotFound(f"no request of trace {trace} is judged yet")
    own = rows[0]
    start, duration = int(own["start"]), int(own["duration"])
    end = start + duration
    values = {
        "service": own["Service"], "stratum": own["Stratum"], "duration": duration, "since": end - DAY_NS, "until": end,
    }  # fmt: skip
    like = store.query(_LIKE, values, role="ui")[0]
    n = int(like["n"] or 0)
    enough = n >= 20
    batched = not own["EngineId"] and own["Engine"] in linked_batches.ENGINES
    found = _neighbours(store, own, trace, start, end, batched) if own["EngineId"] or batched else []
    margin = max(_LEAST_MARGIN_NS, round(duration * _MARGIN))
    step = max(1, (duration + 2 * margin) // _POINTS)
    gpus = [uuid for uuid in str(own["GpuUuids"]).split(",") if uuid]
    around = (start - margin, end + margin, step)
    empty = Lanes(str(around[0]), str(around[1]), [], {})
    steps = step_lanes(store, *around, engine=own["EngineId"]) if own["EngineId"] else empty
    if batched:
        steps = linked_batches.batch_lanes(store, trace, *around[:2])
    return Neighbourhood(
        trace_id=trace,
        span_id=own["SpanId"],
        engine_id=own["EngineId"],
        start_unix_ns=str(start),
        duration_ns=duration,
        ttft_ns=_optional(own["ttft"]),
        last_token_ns=_optional(own["last"]),
        output_tokens=_optional(own["output"]),
        gaps=[(round(1.02 ** int(k)), int(count)) for k, count in _pairs(own["gaps"])],
        gap_percentiles_ns=_gap_percentiles(own["gaps"]),
        stalls=_stalls(store, own, start),
        like=n,
        rank=int(like["faster"]) / n if enough else None,
        median_ns=int(like["median"]) if enough else None,
        stages=[
            StageAgainst(name, int(own[column]), int(like[column]) if enough else 0)
            for name, column in zip((*(one.name for one in REQUEST_STAGES), UNEXPLAINED), ROLLUP_COLUMNS, strict=True)
            if int(own[column]) or (enough and int(like[column]))
        ],
        neighbours=found[:MOST],
        neighbours_total=len(found),
        steps=steps,
        counters=gpu_lanes(store, gpus, *around) if gpus else empty,
        hosts=host_lanes(store, [own["HostId"]], *around) if own["HostId"] else empty,
    )


def _neighbours(
    store: Store, own: dict[str, Any], trace: str, start: int, end: int, batched: bool
) -> list[Neighbour]:  # fmt: skip
    """By overlap, largest first: on the same engine, or in the same batches where the engine tells only those."""
    values = {"engine": own["EngineId"], "trace": trace, "since": start, "until": end}
    found = []
    for row in store.query(_IN_BATCHES if batched else _NEIGHBOURS, values, role="ui"):
        begin, length = int(row["start"]), int(row["duration"])
        overlap = min(end, begin + length) - max(start, begin)
        if overlap > 0:
            found.append(
                Neighbour(
                    row["TraceId"], row["RequestId"], str(begin), length, overlap, _optional(row["input"]),
                    _optional(row["output"]), int(row["prefill"]),
                )
            )  # fmt: skip
    return sorted(found, key=lambda one: (-one.overlap_ns, one.trace_id))


def _stalls(store: Store, own: dict[str, Any], start: int) -> list[Stall]:
    """The stalls with what the engine did meanwhile: it preempted this request, or worked on others' prompts."""
    stalls = [Stall(int(offset), int(length)) for offset, length in _pairs(own["stalls"])]
    if not stalls or not own["EngineId"]:
        return stalls
    values = {
        "engine": own["EngineId"],
        "since": start + min(one.offset_ns for one in stalls),
        "until": start + max(one.offset_ns + one.length_ns for one in stalls),
    }
    steps = store.query(_STALL_STEPS, values, role="ui")
    ids = {own["RequestId"], own["EngineRequestId"]} - {""}
    return [_stall(one, start, steps, ids) for one in stalls]


def _stall(stall: Stall, start: int, steps: list[dict[str, Any]], ids: set[str]) -> Stall:
    begin = start + stall.offset_ns
    inside = [
        (min(begin + stall.length_ns, int(step["at"]) + int(step["ns"])) - max(begin, int(step["at"])), step)
        for step in steps
    ]
    inside = [(overlap, step) for overlap, step in inside if overlap > 0]
    if any(ids & set(step["preempted"]) for _, step in inside):
        return replace(stall, cause="preemption")
    filling = [
        (overlap, step) for overlap, step in inside if int(step["prefill"] or 0) > 0 and not ids & set(step["who"])
    ]
    if sum(overlap for overlap, _ in filling) < _EXPLAINS * stall.length_ns:
        return stall
    tokens: dict[str, int] = {}
    for _, step in filling:
        for who, n in zip(step["who"], step["tokens"], strict=False):
            tokens[who] = tokens.get(who, 0) + int(n)
    most = max(tokens, key=lambda who: tokens[who], default="")
    return replace(stall, cause="prefill_interference", request_id=most)


def _gap_percentiles(text: str) -> tuple[int | None, int | None]:
    """P50 and P95 of the gaps."""
    buckets = sorted((int(k), int(count)) for k, count in _pairs(text))
    p50, p95 = (percentile_of_buckets(q, buckets).value_ns if buckets else None for q in (0.5, 0.95))
    return p50, p95


def _pairs(text: str) -> list[tuple[str, str]]:
    """`a:b,c:d`; parts of another form are left out."""
    pairs = [part.split(":") for part in text.split(",") if part.count(":") == 1]
    return [(a, b) for a, b in pairs if a.lstrip("-").isdigit() and b.isdigit()]


def _optional(value: Any) -> int | None:
    return None if value is None else int(value)

"""Requests of services as columns, many at once: what a jobs test of hours or days needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tailtrace.ingest.store import Store

MS = 1_000_000
START_S = 1_790_000_100 // 300 * 300
Extra = Mapping[str, Callable[[Any], Any]]
"""By stage (tokenize, queue, decode): ms that requests which end at these Unix seconds take longer."""
_BASE = {"tokenize": 8.0, "queue": 20.0, "decode": 240.0}


def insert_traffic(
    store: Store,
    since_s: int,
    until_s: int,
    *,
    services: Sequence[str] = ("chat",),
    routes: Sequence[str] = ("/v1/chat",),
    per_minute: float = 20.0,
    extra: Extra | None = None,
    outcome: str = "ok",
    version: str = "",
    replica: str = "",
    tokens: int = 0,
    streaming: str = "true",
    seed: int = 1,
) -> int:
    """`per_minute` requests of every service and route, evenly spaced, with output and a TPOT where `tokens` is given;
    gives how many they are.
    """
    times = np.arange(since_s, until_s, 60.0 / per_minute)
    draw = np.random.default_rng([seed, since_s])
    places = [(service, route) for service in services for route in routes]
    at = np.repeat(times, len(places))
    stages = {}
    for name, base in _BASE.items():
        more = extra[name](at) if extra and name in extra else 0.0
        stages[name] = np.maximum((base * draw.lognormal(0.0, 0.2, len(at)) + more) * MS, 0).astype(np.uint64)
    total = sum(stages.values(), np.full(len(at), MS, np.uint64))
    end = (at * 1e9).astype(np.int64)
    first = stages["tokenize"] + stages["queue"] + np.uint64(MS)
    ids = [f"{seed:04x}{moment:016x}{index % len(places):012x}" for index, moment in enumerate(end.tolist())]
    stamp = pa.timestamp("ns", "UTC")
    columns: dict[str, Any] = {
        "Start": pa.array(end - total.astype(np.int64), stamp), "End": pa.array(end, stamp), "TraceId": ids,
        "SpanId": [each[-16:] for each in ids], "Service": [service for service, _ in places] * len(times),
        "Route": [route for _, route in places] * len(times), "Kind": ["request"] * len(at),
        "IsRoot": [True] * len(at), "DurationNs": total, "TtftNs": first, "Outcome": [outcome] * len(at),
        "Version": [version] * len(at), "Replica": [replica] * len(at),
        "Streaming": [streaming] * len(at), "Model": ["m"] * len(at),
        "SampleWeight": pa.array([1] * len(at), pa.uint32()),
        "SpanCount": pa.array([3] * len(at), pa.uint32()), "Stratum": pa.array([7] * len(at), pa.uint64()),
        "UnexplainedNs": pa.array([MS] * len(at), pa.uint64()),
        "UnexplainedTtftNs": pa.array([MS] * len(at), pa.uint64()),
        "ReceivedAt": pa.array(end // MS + 1000, pa.timestamp("ms", "UTC")), "Sign": pa.array([1] * len(at), pa.int8()),
        "TokenizeNs": stages["tokenize"], "QueueNs": stages["queue"], "DecodeNs": stages["decode"],
        "TokenizeTtftNs": stages["tokenize"], "QueueTtftNs": stages["queue"],
    }  # fmt: skip
    if tokens:
        columns["TpotNs"] = stages["decode"] // np.uint64(tokens)
        columns["OutputTokens"] = pa.array([tokens] * len(at), pa.uint32())
    store.insert_arrow("judged", pa.table(columns))
    return len(at)


def between(since_s: int, until_s: int, ms: float) -> Callable[[Any], Any]:
    """`ms` more in [since, until)."""
    return lambda at: np.where((at >= since_s) & (at < until_s), ms, 0.0)

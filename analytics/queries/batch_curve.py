"""What an engine's batch buys: step time, tokens per second and waiting by how many sequences decode together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.queries.window import Window
from tailtrace.analytics.statistics.step_times import isotonic
from tailtrace.ingest.store import Store

_FEWEST: Final = 5


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """Steps that decode `batch` sequences and no prompt: `n` of them (each may stand for several), ns a step."""

    batch: int
    n: int
    step_p50_ns: int
    step_p95_ns: int
    tokens_per_second: float
    waiting: float
    kv_usage: float | None


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """Of one engine or of all of a service. A step takes `fixed_ns` + `per_sequence_ns` x batch (least squares).

    `knee` is the batch at which both are equal: half of the most tokens per second that any batch could give; null
    where it lies beyond what was seen. `mixed_steps` hold prompts too and are not in the points. `limited` is the share
    of steps, by how many they stand for, that had requests waiting.
    """

    service: str
    replica: str
    since_unix_ns: str
    until_unix_ns: str
    points: list[BatchPoint]
    fixed_ns: int | None
    per_sequence_ns: int | None
    knee: int | None
    most_tokens_per_second: float | None
    steps: int
    mixed_steps: int
    limited: float | None
    reason: str | None


_STEPS: Final = """
SELECT ifNull(DecodeTokens, 0) AS batch, PrefillTokens > 0 AS mixed, count() AS n,
  sum(greatest(1, toUInt32OrZero(Attributes['tailtrace.sample_weight']))) AS stands_for,
  sumIf(greatest(1, toUInt32OrZero(Attributes['tailtrace.sample_weight'])), Waiting > 0) AS limited,
  quantileExact(0.5)(DurationNs) AS p50, quantileExact(0.95)(DurationNs) AS p95, avg(DurationNs) AS mean,
  avg(ifNull(Waiting, 0)) AS waiting, avg(KvUsage) AS kv
FROM engine_steps
WHERE Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND Service = {service:String} AND ({replica:String} = '' OR Replica = {replica:String}) AND DurationNs > 0
GROUP BY batch, mixed ORDER BY batch
"""


def batch_curve(store: Store, window: Window, service: str, *, replica: str = "") -> BatchCurve:
    """The curve of the engine steps of a service in a window."""
    rows = store.query(
        _STEPS,
        {"since": window.since_ns, "until": window.until_ns, "service": service, "replica": replica},
        role="ui",
    )
    plain = [row for row in rows if not row["mixed"] and row["batch"] and row["n"] >= _FEWEST]
    fixed, slope, knee = line(plain)
    stands_for = sum(int(row["stands_for"]) for row in rows)
    reason = None if plain else "no engine steps in this range" if not rows else "no batch size has 5 steps of its own"
    return BatchCurve(
        service=service,
        replica=replica,
        since_unix_ns=str(window.since_ns),
        until_unix_ns=str(window.until_ns),
        points=[
            BatchPoint(
                int(row["batch"]), int(row["n"]), int(row["p50"]), int(row["p95"]),
                int(row["batch"]) * 1e9 / float(row["mean"]), float(row["waiting"]),
                None if row["kv"] is None else float(row["kv"]),
            )
            for row in plain
        ],
        fixed_ns=fixed,
        per_sequence_ns=slope,
        knee=knee,
        most_tokens_per_second=1e9 / slope if slope else None,
        steps=sum(int(row["n"]) for row in rows),
        mixed_steps=sum(int(row["n"]) for row in rows if row["mixed"]),
        limited=sum(int(row["limited"]) for row in rows) / stands_for if stands_for else None,
        reason=reason,
    )  # fmt: skip


def line(rows: list[dict[str, Any]]) -> tuple[int | None, int | None, int | None]:
    """(fixed, per sequence, knee) of points of batch, mean and n; unknown below three sizes."""
    if len(rows) < 3:
        return None, None, None
    batch = np.array([int(row["batch"]) for row in rows], np.float64)
    n = np.array([int(row["n"]) for row in rows], np.float64)
    times = isotonic(np.array([float(row["mean"]) for row in rows]), n)
    slope, fixed = np.polyfit(batch, times, 1, w=np.sqrt(n))
    if slope <= 0 or fixed <= 0:
        return max(0, round(float(fixed))), max(0, round(float(slope))), None
    knee = round(float(fixed / slope))
    return round(float(fixed)), round(float(slope)), knee if knee <= batch.max() else None

"""A store with an hour in which a queue grew and a GPU was idle meanwhile."""

from __future__ import annotations

from typing import Any

from dashboard_seed import MS
from seeding import SECOND, T0, insert_requests, request

from tailtrace.ingest.store import Store

DAY = 86_400 * SECOND
CHANGE = """
INSERT INTO changes (Id, Metric, Service, Model, Onset, SuspectedAt, State, Departure, Stage, StageShare, UpdatedAt)
VALUES ('c', 'duration', 'api', 'm', '2026-09-21 13:40:00', '2026-09-21 13:42:00', 'confirmed', 5, 'queue', 0.97,
  now64(6))
"""
GAUGES = """
INSERT INTO otel_metrics_gauge (MetricName, Attributes, TimeUnix, Value)
SELECT 'hw.gpu.utilization', map('hw.id', 'GPU-a'),
  fromUnixTimestamp64Nano({t0:Int64} + 60000000000 - toInt64(number) * 10000000000), 0.25
FROM numbers(400)
"""


def calls(first: int, tail_ms: int, days_ago: int) -> list[dict[str, Any]]:
    """450 requests of 67 minutes: 100 ms each, of which every tenth waits `tail_ms` more in the queue."""
    return [
        request(
            first + n,
            duration_ns=(100 + wait) * MS,
            QueueNs=wait * MS,
            DecodeNs=90 * MS,
            TpotNs=5 * MS,
            Replica="r",
            end_ns=T0 - days_ago * DAY - n * 9 * SECOND,
        )
        for n in range(450)
        for wait in [0 if n % 10 else tail_ms]
    ]


def fill_slower(store: Store) -> None:
    """`api` whose tail takes 90 s instead of the 110 ms of yesterday, the engine below it, and a busier service."""
    engine = {"Service": "engine", "IsRoot": False, "Replica": "r", "GpuUuids": "GPU-a", "DecodeNs": 90 * MS}
    insert_requests(
        store,
        [
            *calls(1000, 10, 1),
            *calls(2000, 90_000, 0),
            *(request(3000 + n, duration_ns=90 * MS, end_ns=T0 - n * 60 * SECOND, **engine) for n in range(5)),
            *(request(4000 + n, duration_ns=MS, Service="b", end_ns=T0 - n * 5 * SECOND) for n in range(600)),
        ],
    )
    store.command(CHANGE)
    store.command(GAUGES, {"t0": T0})

"""Runs of the lab put through the product: spans made, stored and judged as if they had come in."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from tailtrace.analytics.jobs.requests import run_requests
from tailtrace.analytics.queries.selection import Selection
from tailtrace.ingest.framing import frame
from tailtrace.ingest.store import Store
from tailtrace.lab import Scenario, history
from tailtrace.lab.scenario import Fault, Fleet, Service, Traffic

TABLES = ("requests", "span_inbox", "watermarks", "engine_steps", "otel_traces", "rollup_1m", "rollup_1h", "rollup_1d")
SERVICE = "llm-chat"
HOUR_NS = 3_600_000_000_000


def steady(rate: float, *, replicas: int = 2, faults: tuple[Fault, ...] = ()) -> Scenario:
    """One service without a daily cycle, `rate` requests a second of the conversation trace."""
    service = Service(SERVICE, replicas=replicas, gpu="h100-80gb", tp=4)
    traffic = Traffic(SERVICE, rate, daily=0.0, abort=0.0, refused=0.0)
    return Scenario("steady", fleet=Fleet(services=(service,)), traffic=(traffic,), faults=faults)


def with_decode(scenario: Scenario, factor: float) -> Scenario:
    """The same, every decode step `factor` times as long (at least 1)."""
    fault = Fault("decode_memory", 0.0, strength=(factor - 1.0) / 0.8, target=SERVICE)
    return dataclasses.replace(scenario, faults=(fault,))


def run(store: Store, folder: Path, scenario: Scenario, *, hours: float, seed: int) -> Selection:
    """The only thing in the store is this run; gives the selection of all its requests."""
    for table in TABLES:
        store.command(f"TRUNCATE TABLE {table}")
    end = time.time_ns() - 120_000_000_000
    path = folder / f"run-{time.time_ns()}.otlp"
    with path.open("wb") as file:
        for body in history(scenario, end_unix_ns=end, hours=hours, seed=seed):
            file.write(frame(body) + body)
    store.insert_segment("traces", path, path.stem)
    path.unlink(missing_ok=True)
    now_ms = time.time_ns() // 1_000_000 + 60_000
    while run_requests(store, now_ms=now_ms).behind:
        pass
    return Selection(SERVICE, end - int(hours * HOUR_NS) - HOUR_NS, end + HOUR_NS)

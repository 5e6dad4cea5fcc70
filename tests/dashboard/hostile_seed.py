"""A store whose every text that a sender may choose is hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dashboard_seed import HOSTILE, MS, TRACE, Spans, spans_of
from seeding import SECOND, T0, insert_requests, insert_traces, judge_traces, request

from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import encode_traces

TEXTS = (
    "Service", "Name", "Route", "Model", "Version", "Replica", "Tenant", "ErrorType", "RequestId", "Engine",
    "EngineVersion", "Precision", "Quantization", "GpuModel", "GpuUuids", "HostId", "ClientRegion",
)  # fmt: skip
STATEMENTS = (
    """INSERT INTO changes (Id, Metric, Service, Model, Onset, SuspectedAt, State, Departure, Stage, StageShare, Cause,
      Marker, UpdatedAt) VALUES ('c', 'duration', {text:String}, {text:String}, '2026-09-21 14:12:00',
      '2026-09-21 14:12:30', 'confirmed', 5, {text:String}, 0.9, 'c', {text:String}, now64(6))""",
    """INSERT INTO alerts (Id, Rule, Cause, State, OpenedAt, Summary, Body, Revision) VALUES
      ('e', {text:String}, 'c', 'open', '2026-09-21 14:12:00', {text:String}, {body:String}, 1)""",
    """INSERT INTO markers (Id, Time, Service, Kind, Was, Became, Text, Source, UpdatedAt) VALUES
      ('m', '2026-09-21 14:12:00', '', {text:String}, {text:String}, {text:String}, {text:String}, 'api', now64(6))""",
    """INSERT INTO client_losses (Minute, Service, Instance, Signal, Reason, Dropped) VALUES
      (now(), {text:String}, {text:String}, 'traces', {text:String}, 7)""",
    """INSERT INTO otel_metrics_gauge (MetricName, Attributes, ResourceAttributes, TimeUnix, Value)
      SELECT ['hw.gpu.utilization', 'tailtrace.host.loop.lag'][1 + number % 2],
        map('hw.id', {text:String}, 'thread.name', {text:String}), map('host.id', {text:String}),
        fromUnixTimestamp64Nano({t0:Int64} - toInt64(number) * 5000000000), 0.5 FROM numbers(40)""",
    """INSERT INTO otel_logs (Timestamp, TraceId, SpanId, SeverityText, ServiceName, Body, LogAttributes) VALUES
      (fromUnixTimestamp64Nano({t0:Int64} + 1000), {trace:String}, '0000000000000003', {text:String}, {text:String},
      {text:String}, map({text:String}, {text:String}))""",
)
BODY: dict[str, Any] = {
    "service": HOSTILE, "metric": "duration", "before": {"ns": 100 * MS, "n": 5000}, "after": {"ns": 140 * MS, "n": 9},
    "stages": [{"stage": HOSTILE, "before_ns": 1, "after_ns": 50 * MS, "share": 1.0}], "examples": [],
    "links": {"requests": f"javascript:{HOSTILE}"},
}  # fmt: skip


def fill_hostile(store: Store, folder: Path) -> None:
    """Requests, a trace, counters, a log, losses, a change, an alert and a marker."""
    own = dict.fromkeys(TEXTS, HOSTILE)
    rows = [
        request(n, duration_ns=(100 + n) * MS, QueueNs=n * MS, TtftNs=20 * MS, end_ns=T0 - n * SECOND, **own)
        for n in range(1, 121)
    ]
    insert_requests(store, rows)
    spans: Spans = [
        (1, 0, HOSTILE, 0, 100, {"kind": 2, "tailtrace.request": True, "tailtrace.route": HOSTILE}),
        (2, 1, HOSTILE, 0, 40, {"tailtrace.stage": "custom", "tailtrace.stage_name": HOSTILE}),
        (3, 1, HOSTILE, 40, 90, {"tailtrace.stage": HOSTILE, HOSTILE: HOSTILE}),
    ]
    resource = {"service.name": HOSTILE, "tailtrace.model": HOSTILE, HOSTILE: HOSTILE}
    insert_traces(store, folder, [encode_traces(resource, spans_of(TRACE, spans))], "hostile")
    judge_traces(store, [TRACE])
    values = {"text": HOSTILE, "body": json.dumps(BODY), "t0": T0, "trace": TRACE}
    for statement in STATEMENTS:
        used = {name: value for name, value in values.items() if f"{{{name}:" in statement}
        store.command(statement, used)

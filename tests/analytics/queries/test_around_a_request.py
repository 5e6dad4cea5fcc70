"""Around a request: its logs, what the engine did in its stalls, its host's counters."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeding import SECOND, T0, insert_requests, insert_traces, request

from tailtrace.analytics.queries.host_counters import host_lanes, hosts_of
from tailtrace.analytics.queries.neighbourhood import neighbourhood
from tailtrace.analytics.queries.trace_logs import trace_logs
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import SpanData, encode_traces

MS = 1_000_000
TRACE = f"{1:032x}"
LOGS = """
INSERT INTO otel_logs (Timestamp, TraceId, SpanId, SeverityText, SeverityNumber, ServiceName, Body, LogAttributes)
VALUES
  (fromUnixTimestamp64Nano({at:Int64}), {trace:String}, '0000000000000002', 'ERROR', 17, 's', 'late one', map()),
  (fromUnixTimestamp64Nano({at:Int64} - 1000000), {trace:String}, '0000000000000001', 'INFO', 9, 's', 'first',
   map('k', 'v')),
  (fromUnixTimestamp64Nano({at:Int64}), repeat('f', 32), '0000000000000001', 'INFO', 9, 's', 'other', map())
"""
STEPS = """
INSERT INTO engine_steps
  (Time, DurationNs, EngineId, PrefillTokens, PrefillRequests, PrefillRequestTokens, Preempted)
VALUES
  (fromUnixTimestamp64Nano({at:Int64} + 100000000), 180000000, 'h/1/0', 4000, ['small', 'big'], [100, 3900], []),
  (fromUnixTimestamp64Nano({at:Int64} + 500000000), 10000000, 'h/1/0', 0, [], [], ['own']),
  (fromUnixTimestamp64Nano({at:Int64} + 700000000), 200000000, 'h/1/0', 0, [], [], []),
  (fromUnixTimestamp64Nano({at:Int64} + 900000000), 90000000, 'h/1/0', 50, ['own'], [50], [])
"""


def test_logs_of_a_trace_and_of_a_span(store: Store, tmp_path: Path) -> None:
    span = SpanData(
        trace_id=bytes.fromhex(TRACE), span_id=(1).to_bytes(8, "big"), parent_span_id=b"", name="x", kind=2,
        start_unix_ns=T0, end_unix_ns=T0 + 100 * MS, attributes={},
    )  # fmt: skip
    insert_traces(store, tmp_path, [encode_traces({"service.name": "s"}, [span])], "logged")
    store.command(LOGS, {"at": T0 + 50 * MS, "trace": TRACE})
    found = trace_logs(store, TRACE)
    assert [(line.body, line.severity) for line in found.logs] == [("first", "INFO"), ("late one", "ERROR")]
    assert found.logs[0].attributes == {"k": "v"}
    assert (found.shown, found.total) == (2, 2)
    assert [line.body for line in trace_logs(store, TRACE, span_id=f"{2:016X}").logs] == ["late one"]
    assert (trace_logs(store, TRACE, limit=1).shown, trace_logs(store, TRACE, limit=1).total) == (1, 2)
    assert trace_logs(store, "e" * 32).logs == []
    with pytest.raises(Rejected):
        trace_logs(store, "x")


def test_each_stall_has_what_the_engine_did_meanwhile(store: Store) -> None:
    stalls = f"{100 * MS}:{200 * MS},{500 * MS}:{50 * MS},{700 * MS}:{200 * MS},{900 * MS}:{90 * MS}"
    insert_requests(
        store,
        [request(1, duration_ns=SECOND, end_ns=T0 + SECOND, EngineId="h/1/0", EngineRequestId="own", Stalls=stalls)],
    )
    store.command(STEPS, {"at": T0})
    found = [(one.cause, one.request_id) for one in neighbourhood(store, TRACE).stalls]
    assert found == [("prefill_interference", "big"), ("preemption", ""), ("", ""), ("", "")]


def test_counters_of_a_host_by_thread_and_cause(store: Store) -> None:
    insert_requests(store, [request(1, duration_ns=SECOND, end_ns=T0, HostId="h1")])
    assert hosts_of(store, "api", T0 - SECOND, T0 + SECOND) == ["h1"]
    values = ", ".join(
        f"('{metric}', map('host.id', 'h1'), map({attributes}), fromUnixTimestamp64Nano({T0 + at * SECOND}), {value})"
        for metric, attributes, at, value in (
            ("tailtrace.host.thread.cpu", "'thread.name', 'tokenizer', 'thread.id', '1'", 0, 0),
            ("tailtrace.host.thread.cpu", "'thread.name', 'tokenizer', 'thread.id', '1'", 1, 0.5e9),
            ("tailtrace.host.thread.cpu", "'thread.name', 'tokenizer', 'thread.id', '2'", 0, 9e9),
            ("tailtrace.host.thread.cpu", "'thread.name', 'tokenizer', 'thread.id', '2'", 1, 9.25e9),
        )
    )
    store.command(
        f"INSERT INTO otel_metrics_sum (MetricName, ResourceAttributes, Attributes, TimeUnix, Value) VALUES {values}"
    )
    lanes = host_lanes(store, ["h1"], T0 - SECOND, T0 + 2 * SECOND, SECOND).lanes
    assert [(lane.lane, [(line.name, line.values) for line in lane.lines]) for lane in lanes] == [
        ("threads", [("tokenizer", [0.75])])
    ]
    assert host_lanes(store, [], T0, T0 + SECOND, SECOND).lanes == []

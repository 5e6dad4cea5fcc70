"""Rows as the OpenTelemetry Collector's ClickHouse exporter inserts them: its columns by name, without ours."""

import json
from pathlib import Path

from tailtrace.ingest.store import Store

TRACES = """
INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, ServiceName,
  ResourceAttributes, ScopeName, ScopeVersion, SpanAttributes, Duration, StatusCode, StatusMessage,
  `Events.Timestamp`, `Events.Name`, `Events.Attributes`, `Links.TraceId`, `Links.SpanId`, `Links.TraceState`,
  `Links.Attributes`)
SELECT now64(9), '5b8efff798038103d269b633813fc60c', 'eee19b7ec3c1b174', '', '', 'GET /', 'Server', 'gw',
  map('service.name', 'gw'), 'scope', '1', map('tailtrace.stage', 'auth'), 1000000, 'Ok', '',
  [now64(9)], ['e'], [map('k', 'v')], [], [], [], []
"""
LOGS = """
INSERT INTO otel_logs (Body, Timestamp, TraceId, SpanId, TraceFlags, SeverityText, SeverityNumber, ServiceName,
  ResourceSchemaUrl, ResourceAttributes, ScopeSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes, LogAttributes,
  EventName)
SELECT 'text', now64(9), '5b8efff798038103d269b633813fc60c', 'eee19b7ec3c1b174', 1, 'INFO', 9, 'gw', '',
  map('service.name', 'gw'), '', 's', '', map(), map('a', 'b'), ''
"""
COMMON = """ResourceAttributes, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes, ScopeDroppedAttrCount,
  ScopeSchemaUrl, ServiceName, MetricName, MetricDescription, MetricUnit, Attributes, StartTimeUnix, TimeUnix"""
VALUES = "map('service.name', 'gw'), '', '', '', map(), 0, '', 'gw', 'm', '', '1', map('a', 'b'), now64(9), now64(9)"
EXEMPLARS = """`Exemplars.FilteredAttributes`, `Exemplars.TimeUnix`, `Exemplars.Value`, `Exemplars.SpanId`,
  `Exemplars.TraceId`"""
METRICS = {
    "gauge": (f"Value, Flags, {EXEMPLARS}", "1.5, 0, [map('k', 'v')], [now64(9)], [2.0], ['s'], ['t']"),
    "sum": (f"Value, Flags, {EXEMPLARS}, AggregationTemporality, IsMonotonic", "1, 0, [], [], [], [], [], 2, true"),
    "histogram": (
        f"Count, Sum, BucketCounts, ExplicitBounds, {EXEMPLARS}, Flags, Min, Max, AggregationTemporality",
        "3, 1.5, [1, 2], [0.5], [], [], [], [], [], 0, 0.1, 0.9, 2",
    ),
    "exp_histogram": (
        "Count, Sum, Scale, ZeroCount, PositiveOffset, PositiveBucketCounts, NegativeOffset, NegativeBucketCounts, "
        f"{EXEMPLARS}, Flags, Min, Max, AggregationTemporality",
        "3, 1.5, 2, 1, 0, [1], 0, [1], [], [], [], [], [], 0, 0.1, 0.9, 2",
    ),
    "summary": (
        "Count, Sum, `ValueAtQuantiles.Quantile`, `ValueAtQuantiles.Value`, Flags",
        "3, 1.5, [0.5], [0.4], 0",
    ),
}


def test_a_span_of_the_exporter_is_stored_dated_and_taken_up_for_judgement(store: Store) -> None:
    store.command(TRACES)
    row = store.query(
        "SELECT Stage, ClockFault, dateDiff('second', ReceivedAt, now64(3)) < 60 AS fresh FROM otel_traces"
    )
    assert row == [{"Stage": "auth", "ClockFault": False, "fresh": 1}]
    assert store.query("SELECT count() AS n FROM otel_traces_trace_id_ts") == [{"n": 1}]
    assert store.query("SELECT Service, Stage FROM span_inbox") == [{"Service": "gw", "Stage": "auth"}]


def test_logs_and_every_kind_of_metric_of_the_exporter_are_stored(store: Store) -> None:
    store.command(LOGS)
    assert store.query("SELECT Body, toUnixTimestamp(TimestampTime) > 0 AS dated FROM otel_logs") == [
        {"Body": "text", "dated": 1}
    ]
    for kind, (columns, values) in METRICS.items():
        store.command(f"INSERT INTO otel_metrics_{kind} ({COMMON}, {columns}) SELECT {VALUES}, {values}")
        assert store.query(f"SELECT count() AS n FROM otel_metrics_{kind}") == [{"n": 1}]


def test_the_grafana_dashboards_statements_run(store: Store) -> None:
    board = json.loads((Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "tailtrace.json").read_text())
    statements = [target["rawSql"] for panel in board["panels"] for target in panel["targets"]]
    assert len(statements) == 3
    for statement in statements:
        store.query(statement.replace("$__timeFilter(End)", "End > now() - 3600"))

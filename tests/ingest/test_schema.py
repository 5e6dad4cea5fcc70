"""What the engine makes of OTLP bodies, and how the schema is brought up."""

import time
from pathlib import Path

import pytest
from bodies import set_attributes, trace_body
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from store_contract import segment

from tailtrace.errors import SchemaTooNew, StoreError
from tailtrace.ingest.store import Signal, Store, ddl, migrate
from tailtrace.ingest.store.migrations import migrations

T0 = 1_790_000_000_000_000_000


def insert(store: Store, tmp_path: Path, *bodies: bytes, signal: Signal = "traces") -> None:
    path = segment(tmp_path / f"{time.monotonic_ns()}.otlp", *bodies)
    store.insert_segment(signal, path, token=str(path))


def span(start: int, end: int) -> bytes:
    request = ExportTraceServiceRequest()
    one = request.resource_spans.add().scope_spans.add().spans.add()
    one.trace_id, one.span_id = bytes(range(16)), bytes(range(8))
    one.start_time_unix_nano, one.end_time_unix_nano = start, end
    return request.SerializeToString()


@pytest.mark.parametrize(
    ("start", "end", "duration", "fault"),
    [
        (T0, T0 + 5, 5, False),
        (T0, T0, 0, False),
        (T0, T0 - 1, 0, True),
        (T0, 0, 0, True),
        (2**64 - 1, 5, 0, True),
        (T0, 2**64 - 1, 2**63 - 1 - T0, False),
    ],
)
def test_no_pair_of_times_is_too_mad(
    store: Store, tmp_path: Path, start: int, end: int, duration: int, fault: bool
) -> None:
    insert(store, tmp_path, span(start, end))
    assert store.query("SELECT Duration, ClockFault FROM otel_traces") == [{"Duration": duration, "ClockFault": fault}]
    store.query("SELECT addNanoseconds(Timestamp, Duration) AS e FROM otel_traces")


def test_a_small_part_of_every_table_is_one_file(store: Store, tmp_path: Path) -> None:
    tables = store.query(
        "SELECT name, create_table_query AS made FROM system.tables "
        "WHERE database = currentDatabase() AND engine LIKE '%MergeTree%' AND name != 'schema_version'"
    )
    loose = [str(t["name"]) for t in tables if "min_bytes_for_full_part_storage = 4194304" not in str(t["made"])]
    assert len(tables) > 20
    assert loose == []
    insert(store, tmp_path, span(T0, T0 + 5))
    parts = store.query("SELECT path FROM system.parts WHERE active AND table = 'otel_traces'")
    assert [[file.name for file in Path(str(part["path"])).iterdir()] for part in parts] == [["data.packed"]]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=1, max_size=8))
def test_any_times_are_stored(store: Store, tmp_path: Path, times: list[tuple[int, int]]) -> None:
    store.command("TRUNCATE TABLE otel_traces")
    insert(store, tmp_path, *(span(start, end) for start, end in times))
    row = store.query("SELECT count() AS n, max(Duration) AS d FROM otel_traces")[0]
    assert row["n"] == len(times)
    assert row["d"] < 2**63


@pytest.mark.parametrize("duration", [2**64 - 191_305, 2**63, 2**63 - 1])
def test_a_wrapped_duration_of_another_writer_fails_nothing(store: Store, duration: int) -> None:
    store.command(
        "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, Duration) "
        "SELECT fromUnixTimestamp64Nano({t:Int64}, 'UTC'), 'abc', 'def', {d:UInt64}",
        {"t": T0, "d": duration},
    )
    assert store.query("SELECT ClockFault FROM otel_traces") == [{"ClockFault": duration > 2**63 - 1}]
    ends = store.query("SELECT toUnixTimestamp64Nano(max(End)) AS e FROM otel_traces_trace_id_ts")
    assert ends == [{"e": T0 if duration > 2**63 - 1 else 2**63 - 1}]


def test_bad_utf8_is_replaced(store: Store, tmp_path: Path) -> None:
    body = trace_body(2, name="abcd").replace(b"abcd", b"a\xff\xfed")
    insert(store, tmp_path, body)
    assert store.query("SELECT DISTINCT SpanName FROM otel_traces") == [{"SpanName": "a\ufffdd"}]


def test_steps_go_to_their_own_table(store: Store, tmp_path: Path) -> None:
    attributes = {
        "tailtrace.engine_id": "host/7/0",
        "tailtrace.running": 5,
        "tailtrace.waiting": 0,
        "tailtrace.prefill_tokens": 19,
        "tailtrace.prefill": "chat:a:12,b:7",
        "tailtrace.preempted": "z",
        "tailtrace.kv_usage": 0.5,
        "tailtrace.gpu_ns": 1_000_000,
        "mine": "kept",
    }
    steps = trace_body(1, scope="tailtrace.steps", name="step", attributes=attributes, start_unix_ns=T0, duration_ns=9)
    insert(store, tmp_path, steps + trace_body(2))
    assert store.query("SELECT count() AS n FROM otel_traces") == [{"n": 2}]
    row = store.query("SELECT *, toUnixTimestamp64Nano(Time) AS ns FROM engine_steps")[0]
    del row["Time"], row["ReceivedAt"]
    assert row == {
        "ns": T0,
        "DurationNs": 9,
        "EngineId": "host/7/0",
        "Service": "gw",
        "Replica": "gw-1",
        "HostId": "",
        "Model": "",
        "Running": 5,
        "Waiting": 0,
        "WaitingCapacity": None,
        "WaitingDeferred": None,
        "PrefillTokens": 19,
        "DecodeTokens": None,
        "PrefillRequests": ["chat:a", "b"],
        "PrefillRequestTokens": [12, 7],
        "Preempted": ["z"],
        "KvUsage": 0.5,
        "GpuNs": 1_000_000,
        "GpuUuids": "",
        "Simulated": False,
        "Attributes": {"mine": "kept"},
    }


def test_what_clients_dropped_is_known(store: Store, tmp_path: Path) -> None:
    for dropped in ("queue_full:3", "queue_full:12,encode:1"):
        insert(store, tmp_path, trace_body(1, scope_attributes={"tailtrace.dropped": dropped}))
    insert(store, tmp_path, trace_body(1, service="other", scope_attributes={"tailtrace.dropped": "encode:4"}))
    rows = store.query("SELECT Service, Reason, Dropped FROM client_losses_total ORDER BY Service, Reason")
    assert rows == [
        {"Service": "gw", "Reason": "encode", "Dropped": 1},
        {"Service": "gw", "Reason": "queue_full", "Dropped": 12},
        {"Service": "other", "Reason": "encode", "Dropped": 4},
    ]


def test_gauges_and_sums(store: Store, tmp_path: Path) -> None:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource, {"service.name": "sampler"})
    metrics = resource.scope_metrics.add().metrics
    power = metrics.add(name="hw.power", unit="W").gauge.data_points
    zero = power.add(time_unix_nano=T0, as_int=0)
    set_attributes(zero, {"hw.id": "GPU-1"})
    power.add(time_unix_nano=T0 + 1, as_double=1.5)
    power.add(time_unix_nano=T0 + 2, flags=1)  # no recorded value: a gap, not a zero
    energy = metrics.add(name="hw.energy", unit="J").sum
    energy.is_monotonic, energy.aggregation_temporality = True, 2
    energy.data_points.add(time_unix_nano=T0, start_time_unix_nano=T0 - 5, as_int=77)
    insert(store, tmp_path, request.SerializeToString(), signal="metrics")
    columns = "ServiceName, MetricName, MetricUnit, Attributes, toUnixTimestamp64Nano(TimeUnix) AS t, Value"
    common = {"ServiceName": "sampler", "MetricName": "hw.power", "MetricUnit": "W"}
    assert store.query(f"SELECT {columns} FROM otel_metrics_gauge ORDER BY t") == [
        {**common, "Attributes": {"hw.id": "GPU-1"}, "t": T0, "Value": 0.0},
        {**common, "Attributes": {}, "t": T0 + 1, "Value": 1.5},
    ]
    rows = store.query("SELECT MetricName, Value, IsMonotonic, AggregationTemporality AS a FROM otel_metrics_sum")
    assert rows == [{"MetricName": "hw.energy", "Value": 77.0, "IsMonotonic": True, "a": 2}]


def test_the_ddl_is_the_whole_schema() -> None:
    text = ddl()
    for name in ("otel_traces", "otel_traces_trace_id_ts", "otel_metrics_gauge", "engine_steps", "requests"):
        assert f"CREATE TABLE {name} (" in text


def test_a_migration_that_was_cut_short_resumes(store: Store, tmp_path: Path) -> None:
    first = tmp_path / "9001_first.sql"
    first.write_text("CREATE TABLE m_one (A Int32) ENGINE = Null;\n\nCREATE TABLE m_two (A Nonsense) ENGINE = Null;\n")
    for migration in migrations():
        (tmp_path / f"{migration.version:04d}_{migration.name}.sql").write_text(migration.text)
    with pytest.raises(StoreError, match="Nonsense"):
        migrate(store, tmp_path)
    first.write_text(first.read_text().replace("Nonsense", "Int32"))
    assert migrate(store, tmp_path) == [9001]
    assert migrate(store, tmp_path) == []
    with pytest.raises(SchemaTooNew, match="9001"):
        migrate(store)
    for statement in ("DROP TABLE m_one", "DROP TABLE m_two", "ALTER TABLE schema_version DELETE WHERE Version = 9001"):
        store.command(statement + (" SETTINGS mutations_sync = 2" if "ALTER" in statement else ""))
    assert migrate(store) == []

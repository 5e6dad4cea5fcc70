"""Every kind of metric and log record, from the door to the tables of the Collector's exporter."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from signal_samples import SPAN_ID, TRACE_ID, logs, metrics

from tailtrace.errors import Rejected
from tailtrace.ingest.framing import frame
from tailtrace.ingest.receiver.checks import Checked, check
from tailtrace.ingest.receiver.checks.wire import length_field, varint_field
from tailtrace.ingest.receiver.limits import Limits
from tailtrace.ingest.receiver.otlp_json import to_protobuf
from tailtrace.ingest.store import Signal, Store

NOW = time.time_ns() - 1_000_000_000


def as_json(message: Any) -> bytes:
    """OTLP/JSON: protobuf's own JSON, but with ids in hex."""

    def hexed(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                k: {"traceId": TRACE_ID, "spanId": SPAN_ID}[k].hex() if k in ("traceId", "spanId") else hexed(v)
                for k, v in value.items()
            }
        return [hexed(each) for each in value] if isinstance(value, list) else value

    return json.dumps(hexed(MessageToDict(message))).encode()


def stored(store: Store, folder: Path, signal: Signal, body: bytes) -> Checked:
    checked = check(signal, body, Limits(), NOW)
    path = folder / "segment.otlp"
    path.write_bytes(frame(checked.body) + checked.body)
    store.insert_segment(signal, path, "token")
    return checked


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_every_kind_of_metric_is_stored(store: Store, tmp_path: Path, form: str) -> None:
    request = metrics(NOW)
    body = request.SerializeToString() if form == "protobuf" else to_protobuf("metrics", as_json(request)).body
    checked = stored(store, tmp_path, "metrics", body)
    assert (checked.items, checked.rejected, checked.mended) == (5, {}, {})
    exemplars = (
        "Exemplars.Value AS v, Exemplars.TraceId AS t, Exemplars.SpanId AS s, Exemplars.FilteredAttributes AS a, "
        "arrayMap(x -> toUnixTimestamp64Nano(x), Exemplars.TimeUnix) AS at"
    )
    assert store.query(f"SELECT ServiceName, MetricName, Value, {exemplars} FROM otel_metrics_gauge") == [
        {"ServiceName": "vllm", "MetricName": "kv_usage", "Value": 0.5, "v": [-7.0, 2.5], "t": [TRACE_ID.hex(), ""],
         "s": [SPAN_ID.hex(), ""], "a": [{"user": "u1"}, {}], "at": [NOW - 5, NOW - 4]}
    ]  # fmt: skip
    assert store.query("SELECT Value, AggregationTemporality AS a, IsMonotonic AS m FROM otel_metrics_sum") == [
        {"Value": 12.0, "a": 2, "m": True}
    ]
    histogram = (
        "MetricUnit, Count, Sum, BucketCounts, ExplicitBounds, Min, Max, AggregationTemporality AS a, Attributes"
    )
    assert store.query(f"SELECT {histogram}, Exemplars.Value AS v FROM otel_metrics_histogram") == [
        {"MetricUnit": "s", "Count": 6, "Sum": 1.5, "BucketCounts": [1, 2, 3], "ExplicitBounds": [0.1, 0.25],
         "Min": 0.01, "Max": 0.9, "a": 2, "Attributes": {"model": "m"}, "v": [0.2]}
    ]  # fmt: skip
    exponential = (
        "Count, Sum, Scale, ZeroCount, PositiveOffset AS po, PositiveBucketCounts AS p, NegativeOffset AS no, "
        "NegativeBucketCounts AS n, Min, Max, AggregationTemporality AS a"
    )
    assert store.query(f"SELECT {exponential} FROM otel_metrics_exp_histogram") == [
        {"Count": 9, "Sum": -2.0, "Scale": -3, "ZeroCount": 1, "po": 5, "p": [4, 0, 3], "no": -2, "n": [1],
         "Min": -1.0, "Max": 64.0, "a": 1}
    ]  # fmt: skip
    summary = "Count, Sum, ValueAtQuantiles.Quantile AS q, ValueAtQuantiles.Value AS v"
    assert store.query(f"SELECT {summary} FROM otel_metrics_summary") == [
        {"Count": 4, "Sum": 8.0, "q": [0.5, 0.99], "v": [1.5, 3.0]}
    ]


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_log_records_are_stored(store: Store, tmp_path: Path, form: str) -> None:
    request = logs(NOW)
    body = request.SerializeToString() if form == "protobuf" else to_protobuf("logs", as_json(request)).body
    before = time.time()
    checked = stored(store, tmp_path, "logs", body)
    assert (checked.items, checked.rejected) == (3, {})
    assert checked.mended["value_as_json"] == 1
    columns = (
        "toUnixTimestamp64Nano(Timestamp) AS at, TraceId, SpanId, TraceFlags, SeverityText, SeverityNumber, "
        "ServiceName, Body, ResourceSchemaUrl, ScopeSchemaUrl, ScopeName, LogAttributes, EventName"
    )
    rows = store.query(f"SELECT {columns} FROM otel_logs ORDER BY SeverityNumber = 17 DESC, at")
    assert rows[0] == {
        "at": NOW, "TraceId": TRACE_ID.hex(), "SpanId": SPAN_ID.hex(), "TraceFlags": 1, "SeverityText": "ERROR",
        "SeverityNumber": 17, "ServiceName": "gw", "Body": "out of memory",
        "ResourceSchemaUrl": "https://example.org/r", "ScopeSchemaUrl": "https://example.org/s",
        "ScopeName": "logger", "LogAttributes": {"attempt": "3"}, "EventName": "oom",
    }  # fmt: skip
    assert (rows[1]["at"], rows[1]["Body"]) == (NOW + 2, '{"a":[1]}')
    assert before - 1 <= rows[2]["at"] / 1e9 <= time.time() + 1
    if form == "protobuf":
        assert (rows[1]["TraceId"], checked.mended["id_dropped"]) == ("", 1)


def test_a_record_of_another_century_is_rejected_alone() -> None:
    request = logs(NOW)
    request.resource_logs[0].scope_logs[0].log_records[0].time_unix_nano = 1_700_000_000
    checked = check("logs", request.SerializeToString(), Limits(), NOW)
    assert (checked.items, checked.rejected) == (2, {"start_too_early": 1})
    assert "log record: time_unix_nano" in checked.first_reason
    assert "seconds" in checked.first_reason
    left = ExportLogsServiceRequest.FromString(checked.body).resource_logs[0].scope_logs[0].log_records
    assert [record.severity_number for record in left] == [0, 9]


def point(*fields: bytes) -> bytes:
    """A request with one histogram point that holds these fields besides its time."""
    times = b"\x19" + NOW.to_bytes(8, "little")
    histogram = length_field(9, length_field(1, times + b"".join(fields)))
    return length_field(1, length_field(2, length_field(2, length_field(1, b"h") + histogram)))


def test_repeated_numbers_may_come_one_by_one(store: Store, tmp_path: Path) -> None:
    single = b"".join(b"\x31" + n.to_bytes(8, "little") for n in (4, 5))
    assert stored(store, tmp_path, "metrics", point(single)).items == 1
    assert store.query("SELECT BucketCounts AS b FROM otel_metrics_histogram") == [{"b": [4, 5]}]


@pytest.mark.parametrize(
    "field",
    [length_field(6, b"\0" * 12), length_field(7, b"\0" * 7), varint_field(6, 1)],
    ids=["counts", "bounds", "type"],
)
def test_numbers_that_do_not_fit_are_no_request(field: bytes) -> None:
    with pytest.raises(Rejected):
        check("metrics", point(field), Limits(), NOW)


def test_numbers_in_words_are_read_from_json(store: Store, tmp_path: Path) -> None:
    body = {"name": "h", "histogram": {"dataPoints": [
        {"timeUnixNano": str(NOW), "sum": "NaN", "bucketCounts": ["1", 1], "explicitBounds": ["Infinity"]},
        {"timeUnixNano": str(NOW), "bucketCounts": 3},
    ]}}  # fmt: skip
    request = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [body]}]}]}).encode()
    converted = to_protobuf("metrics", request)
    assert converted.rejected == {"bad_field": 1}
    stored(store, tmp_path, "metrics", converted.body)
    (row,) = store.query("SELECT Sum, BucketCounts AS b, ExplicitBounds AS e FROM otel_metrics_histogram")
    assert math.isnan(row["Sum"])
    assert (row["b"], row["e"]) == ([1, 1], [math.inf])

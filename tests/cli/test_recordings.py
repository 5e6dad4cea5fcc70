"""Recorded OTLP in every shape it is found in, and moved in time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailtrace.cli.recordings import Body, read_recording
from tailtrace.errors import ConfigError

T0 = 1_700_000_000_000_000_000


def traces(spans: int = 1, first: int = 1) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(first, first + spans):
        span = scope.spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name="chat",
            start_time_unix_nano=T0 + number,
            end_time_unix_nano=T0 + number + 10,
        )
        span.events.add(name="first token", time_unix_nano=T0 + number + 5)
    return request.SerializeToString()


def metrics() -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="kv.usage.of.16b", unit="1")
    metric.gauge.data_points.add(time_unix_nano=T0, as_double=0.5)
    return request.SerializeToString()


def logs() -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=T0, severity_text="INFO")
    record.body.string_value = "started"
    return request.SerializeToString()


def delimited(*bodies: bytes) -> bytes:
    out = b""
    for body in bodies:
        length = len(body)
        while length > 127:
            out += bytes([length & 127 | 128])
            length >>= 7
        out += bytes([length]) + body
    return out


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_one_protobuf_body(tmp_path: Path) -> None:
    (body,) = read_recording(write(tmp_path / "a.pb", traces(3)))
    assert (body.signal, body.items(), body.content_type) == ("traces", 3, "application/x-protobuf")
    assert body.encode() == traces(3)
    assert body.newest_unix_ns() == T0 + 13


def test_a_journal_segment(tmp_path: Path) -> None:
    bodies = list(read_recording(write(tmp_path / "a.otlp", delimited(traces(2), traces(40, 7), traces(1, 90)))))
    assert [body.items() for body in bodies] == [2, 40, 1]
    assert bodies[1].encode() == traces(40, 7)


def test_gzip_is_seen_by_content(tmp_path: Path) -> None:
    (body,) = read_recording(write(tmp_path / "a.pb", gzip.compress(traces(3))))
    assert body.items() == 3


@pytest.mark.parametrize(("data", "signal"), [(traces(), "traces"), (metrics(), "metrics"), (logs(), "logs")])
def test_the_signal_is_seen_by_content(tmp_path: Path, data: bytes, signal: str) -> None:
    (body,) = read_recording(write(tmp_path / "a.pb", data))
    assert body.signal == signal
    assert body.items() == 1
    assert body.encode() == data


def test_json_a_file_and_json_a_line(tmp_path: Path) -> None:
    span = {"startTimeUnixNano": str(T0), "endTimeUnixNano": T0 + 9}
    one = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    two = {"resourceMetrics": []}
    (pretty,) = read_recording(write(tmp_path / "a.json", json.dumps(one, indent=2).encode()))
    assert (pretty.signal, pretty.items(), pretty.content_type) == ("traces", 1, "application/json")
    assert pretty.newest_unix_ns() == T0 + 9
    lines = "\n".join([json.dumps(one), "", json.dumps(two)])
    assert [body.signal for body in read_recording(write(tmp_path / "a.jsonl", lines.encode()))] == [
        "traces",
        "metrics",
    ]


def test_all_known_times_move_and_unknown_ones_stay(tmp_path: Path) -> None:
    request = ExportTraceServiceRequest.FromString(traces(1))
    request.resource_spans[0].scope_spans[0].spans[0].events.add(name="no time")
    (body,) = read_recording(write(tmp_path / "a.pb", request.SerializeToString()))
    moved = body.shifted(1_000)
    span = moved.content.resource_spans[0].scope_spans[0].spans[0]
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (T0 + 1_001, T0 + 1_011)
    assert [event.time_unix_nano for event in span.events] == [T0 + 1_006, 0]
    assert body.newest_unix_ns() == T0 + 11  # the original is as it was


def test_json_times_move_and_attributes_stay(tmp_path: Path) -> None:
    span = {
        "startTimeUnixNano": str(T0),
        "endTimeUnixNano": T0 + 9,
        "events": [{"timeUnixNano": "0"}, {"timeUnixNano": str(T0 + 3)}],
        "attributes": [{"key": "k", "value": {"kvlistValue": {"timeUnixNano": "7"}}}],
    }
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    (body,) = read_recording(write(tmp_path / "a.json", json.dumps(document).encode()))
    moved = body.shifted(-9).content["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert moved["startTimeUnixNano"] == str(T0 - 9)
    assert moved["endTimeUnixNano"] == str(T0)
    assert [event["timeUnixNano"] for event in moved["events"]] == ["0", str(T0 - 6)]
    assert moved["attributes"] == span["attributes"]


def test_metric_points_move(tmp_path: Path) -> None:
    (body,) = read_recording(write(tmp_path / "a.pb", metrics()))
    point = body.shifted(5).content.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
    assert point.time_unix_nano == T0 + 5


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"hello world", "neither OTLP protobuf nor OTLP/JSON"),
        (traces(3)[:-1], "neither OTLP protobuf nor OTLP/JSON"),
        (b"\x1f\x8bbroken", "damaged gzip"),
        (b'{"a": 1}', "expected an object with resourceSpans"),
        (b'{"resourceSpans": []}\n{"resourceSpans": [', "line 2: not JSON"),
    ],
)
def test_anything_else_is_refused_in_words(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        list(read_recording(write(tmp_path / "a", data)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.pb: cannot be read"):
        list(read_recording(tmp_path / "nowhere.pb"))


def test_recorded_vllm_traces() -> None:
    files = sorted((Path(__file__).resolve().parents[1] / "data" / "vllm").glob("*.pb"))
    bodies = [body for path in files for body in read_recording(path)]
    assert {body.signal for body in bodies} == {"traces"}
    assert [body.items() for body in bodies] == [6, 1, 1, 2, 2, 11, 36, 20, 19]


def test_backfill_is_declared_once_by_every_process() -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().resource.attributes.add(key="service.name").value.string_value = "a"
    request.resource_spans.add()
    twice = Body("traces", request, "protobuf").backfilled().backfilled().content
    declared = [[(a.key, a.value.bool_value) for a in each.resource.attributes] for each in twice.resource_spans]
    assert declared == [[("service.name", False), ("tailtrace.backfill", True)], [("tailtrace.backfill", True)]]
    document = {"resourceSpans": [{"resource": {"attributes": [{"key": "a", "value": {"stringValue": "b"}}]}}]}
    once = Body("traces", document, "json").backfilled().backfilled().content["resourceSpans"][0]["resource"]
    assert [each["key"] for each in once["attributes"]] == ["a", "tailtrace.backfill"]

"""Hand-written OTLP bytes are read back by the official protobuf classes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from tailtrace.instrumentation.otlp import Labels, Point, SpanData, any_value, encode_metrics, encode_traces, varint
from tailtrace.version import VERSION

TRACE = bytes(range(16))
SPAN = bytes(range(8))
PARENT = bytes(range(8, 16))
START = 1_700_000_000_123_456_789


def python(value: AnyValue) -> Any:
    """The Python value an AnyValue stands for."""
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [python(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return {pair.key: python(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, which)


def read(body: bytes) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    return request


def test_a_span_with_everything_is_read_back() -> None:
    span = SpanData(
        TRACE, SPAN, PARENT, "chat", 2, START, START + 5, {"s": "x", "b": True, "i": -3, "f": 0.5, "l": ["a", "b"]},
        status_code=2, status_message="boom", links=[(TRACE, PARENT)], events=[(START + 1, "e", {"k": 1})],
        trace_state="a=b",
    )  # fmt: skip
    request = read(encode_traces({"service.name": "gw"}, [span], scope_attributes={"tailtrace.dropped": "full:3"}))
    resource = request.resource_spans[0]
    assert {pair.key: python(pair.value) for pair in resource.resource.attributes} == {"service.name": "gw"}
    scope = resource.scope_spans[0].scope
    assert (scope.name, scope.version) == ("tailtrace", VERSION)
    assert {pair.key: python(pair.value) for pair in scope.attributes} == {"tailtrace.dropped": "full:3"}
    got = resource.scope_spans[0].spans[0]
    assert (got.trace_id, got.span_id, got.parent_span_id, got.name, got.kind) == (TRACE, SPAN, PARENT, "chat", 2)
    assert (got.start_time_unix_nano, got.end_time_unix_nano) == (START, START + 5)
    assert {pair.key: python(pair.value) for pair in got.attributes} == {
        "s": "x", "b": True, "i": -3, "f": 0.5, "l": ["a", "b"],
    }  # fmt: skip
    assert (got.status.code, got.status.message, got.trace_state) == (2, "boom", "a=b")
    assert (got.links[0].trace_id, got.links[0].span_id) == (TRACE, PARENT)
    assert (got.events[0].time_unix_nano, got.events[0].name) == (START + 1, "e")
    assert python(got.events[0].attributes[0].value) == 1


def test_a_root_has_no_parent_and_unset_status() -> None:
    got = read(encode_traces({}, [SpanData(TRACE, SPAN, b"", "r", 1, 1, 2)])).resource_spans[0].scope_spans[0].spans[0]
    assert got.parent_span_id == b""
    assert not got.HasField("status")


def test_bodies_of_several_resources_are_concatenated() -> None:
    bodies = [encode_traces({"service.name": name}, [SpanData(TRACE, SPAN, b"", name, 1, 1, 2)]) for name in "ab"]
    request = read(b"".join(bodies))
    assert [spans.scope_spans[0].spans[0].name for spans in request.resource_spans] == ["a", "b"]


def test_true_one_and_text_one_stay_apart_through_the_cache() -> None:
    span = SpanData(TRACE, SPAN, b"", "r", 1, 1, 2, {"a": 1, "b": True, "c": "1", "d": 1.0})
    for _ in range(2):
        got = read(encode_traces({}, [span])).resource_spans[0].scope_spans[0].spans[0]
        kinds = [pair.value.WhichOneof("value") for pair in got.attributes]
        assert kinds == ["int_value", "bool_value", "string_value", "double_value"]


def test_large_bodies_have_right_lengths() -> None:
    spans = [SpanData(TRACE, SPAN, b"", "n" * size, 1, 1, 2) for size in (1, 127, 128, 16_383, 16_384, 300_000)]
    got = read(encode_traces({}, spans)).resource_spans[0].scope_spans[0].spans
    assert [len(span.name) for span in got] == [1, 127, 128, 16_383, 16_384, 300_000]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, str(2**63)),
        ("\ud800", "?"),
        (None, None),
        (b"\x00\xff", b"\x00\xff"),
        ({"a": [1, {"b": 2.5}]}, {"a": [1, {"b": 2.5}]}),
        (1 + 2j, "(1+2j)"),
    ],
)
def test_values_at_the_edges(value: Any, expected: Any) -> None:
    parsed = AnyValue()
    parsed.ParseFromString(any_value(value))
    assert python(parsed) == expected


def test_endless_nesting_is_cut() -> None:
    loop: list[Any] = []
    loop.append(loop)
    parsed = AnyValue()
    parsed.ParseFromString(any_value(loop))
    assert parsed.WhichOneof("value") == "array_value"


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(), v, max_size=4), max_leaves=8
)


@given(values)
def test_any_value_round_trip(value: Any) -> None:
    parsed = AnyValue()
    parsed.ParseFromString(any_value(value))
    assert python(parsed) == value


@given(st.integers(0, 2**64 - 1))
def test_varint_is_base_128(value: int) -> None:
    assert sum((byte & 127) << 7 * place for place, byte in enumerate(varint(value))) == value


@pytest.mark.parametrize("value", [0, -3, 7.5, True, (1 << 63) - 1, 1 << 63, -(1 << 70), float("nan"), float("-inf")])
@pytest.mark.parametrize("start", [0, START])
def test_numbers_and_kept_labels_of_points(value: float, start: int) -> None:
    labels = {"hw.id": "GPU-1", "tailtrace.rank": 3, "long": "x" * 20_000}
    plain, kept = (
        encode_metrics({}, [Point("m", "1", "sum" if start else "gauge", value, START, made, start)])
        for made in (labels, Labels(labels))
    )
    assert plain == kept
    metric = ExportMetricsServiceRequest.FromString(plain).resource_metrics[0].scope_metrics[0].metrics[0]
    [point] = (metric.sum if start else metric.gauge).data_points
    whole = isinstance(value, int) and abs(value) < 1 << 63
    assert float(point.as_int if whole else point.as_double) == pytest.approx(float(value), nan_ok=True)
    assert (point.time_unix_nano, point.start_time_unix_nano) == (START, start)
    assert {pair.key: python(pair.value) for pair in point.attributes} == labels


def test_metrics_are_read_back() -> None:
    points = [
        Point("hw.gpu.utilization", "1", "gauge", 0.5, START, {"hw.id": "GPU-1"}),
        Point("hw.gpu.utilization", "1", "gauge", 0.25, START, {"hw.id": "GPU-2"}),
        Point("hw.gpu.io", "By", "sum", 7, START + 1, {"hw.id": "GPU-1"}, start_unix_ns=START),
    ]
    request = ExportMetricsServiceRequest()
    request.ParseFromString(encode_metrics({"host.id": "h"}, points))
    assert python(request.resource_metrics[0].resource.attributes[0].value) == "h"
    gauge, total = request.resource_metrics[0].scope_metrics[0].metrics
    assert (gauge.name, gauge.unit) == ("hw.gpu.utilization", "1")
    assert [(point.as_double, python(point.attributes[0].value)) for point in gauge.gauge.data_points] == [
        (0.5, "GPU-1"), (0.25, "GPU-2"),
    ]  # fmt: skip
    assert total.sum.is_monotonic
    assert total.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    point = total.sum.data_points[0]
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (7, START, START + 1)

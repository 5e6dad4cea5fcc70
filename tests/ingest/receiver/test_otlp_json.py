"""OTLP/JSON as SDKs and people send it."""

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_samples import CHILD_ID, NOW, ROOT_ID, TRACE_ID, attributes_of, json_request, json_span, spans_of

from tailtrace.errors import Rejected
from tailtrace.ingest.receiver.checks import check
from tailtrace.ingest.receiver.limits import Limits
from tailtrace.ingest.receiver.otlp_json import Converted, to_protobuf


def converted(*spans: Any) -> Converted:
    return to_protobuf("traces", json.dumps(json_request(*spans)).encode())


def attribute(value: Any) -> Any:
    result = converted(json_span(NOW, attributes=[{"key": "x", "value": value}]))
    return attributes_of(spans_of(result.body)[0])["x"]


def test_a_whole_span_arrives() -> None:
    event = {"timeUnixNano": str(NOW), "name": "first_token", "attributes": []}
    link = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "2"}
    status = {"code": "STATUS_CODE_ERROR", "message": "boom"}
    result = converted(
        json_span(NOW, parentSpanId=CHILD_ID.hex(), events=[event], links=[link], status=status, traceState="a=b")
    )
    one = spans_of(result.body)[0]
    assert (one.trace_id, one.span_id, one.parent_span_id) == (TRACE_ID, ROOT_ID, CHILD_ID)
    assert (one.name, one.kind, one.trace_state) == ("gateway.request", 2, "a=b")
    assert one.end_time_unix_nano - one.start_time_unix_nano == 1_000_000_000
    assert (one.events[0].name, one.events[0].time_unix_nano) == ("first_token", NOW)
    assert (one.links[0].trace_id, one.links[0].span_id) == (b"\0" * 15 + b"\1", b"\0" * 7 + b"\2")
    assert (one.status.code, one.status.message) == (2, "boom")
    assert attributes_of(one) == {"n": 42}


def test_ids_are_hex_of_either_case() -> None:
    result = converted(json_span(traceId=TRACE_ID.hex().upper()))
    assert spans_of(result.body)[0].trace_id == TRACE_ID


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("W47/95gDgQPSabYzgT/GDA==", "base64 is for other fields"),
        ("zz" * 16, "is not hex digits"),
        ("5" * 31, "is not hex digits"),
        (" " * 2 + "5" * 30, "is not hex digits"),
        (5, "is int, expected hex digits"),
    ],
)
def test_a_trace_id_that_is_not_hex_costs_its_span(value: Any, words: str) -> None:
    result = converted(json_span(), json_span(traceId=value, spanId=CHILD_ID.hex()))
    assert (len(spans_of(result.body)), result.rejected) == (1, {"bad_trace_id": 1})
    assert result.first_reason.startswith("span eee19b7ec3c1b175: traceId")
    assert words in result.first_reason


def test_a_bad_parent_or_link_does_not_cost_its_span() -> None:
    result = converted(json_span(NOW, parentSpanId="zz", links=[{"traceId": "zz", "spanId": "zz"}]))
    checked = check("traces", result.body, Limits(), NOW)
    assert (checked.items, checked.mended) == (1, {"parent_dropped": 1, "link_dropped": 1})


@pytest.mark.parametrize("kind", [3, "3", "SPAN_KIND_CLIENT"])
def test_enumerations_are_numbers_or_names(kind: Any) -> None:
    assert spans_of(converted(json_span(kind=kind)).body)[0].kind == 3


@pytest.mark.parametrize("start", [NOW, str(NOW)])
def test_times_are_numbers_or_text(start: Any) -> None:
    assert spans_of(converted(json_span(startTimeUnixNano=start)).body)[0].start_time_unix_nano == NOW


@pytest.mark.parametrize("start", ["soon", 1.5, 2**64, -(2**64), [], {}, True and "0x1"])
def test_a_time_that_is_none_costs_its_span(start: Any) -> None:
    result = converted(json_span(startTimeUnixNano=start), json_span())
    assert (len(spans_of(result.body)), result.rejected) == (1, {"bad_field": 1})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"stringValue": "a"}, "a"),
        ({"stringValue": 5}, "5"),
        ({"stringValue": 2**64 - 1}, "18446744073709551615"),
        ({"stringValue": float("inf")}, "inf"),
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"intValue": 7}, 7),
        ({"intValue": "9223372036854775808"}, "9223372036854775808"),
        ({"intValue": "x"}, "x"),
        ({"doubleValue": "-Infinity"}, float("-inf")),
        ({"doubleValue": 0.5}, 0.5),
        ({"doubleValue": []}, "[]"),
        ({"boolValue": True}, True),
        ({"boolValue": "false"}, False),
        ({"bytesValue": "AQI="}, b"\1\2"),
        ({"bytesValue": "%%"}, "%%"),
        ({"unknownValue": 1}, None),
        ({"stringValue": None}, None),
        ("bare", "bare"),
    ],
)
def test_values(value: Any, expected: Any) -> None:
    assert attribute(value) == expected


def test_nested_values_end_as_the_same_text_as_in_protobuf() -> None:
    pairs = [{"key": "a", "value": {"arrayValue": {"values": [{"intValue": 1}, {"boolValue": False}]}}}]
    result = converted(json_span(NOW, attributes=[{"key": "x", "value": {"kvlistValue": {"values": pairs}}}]))
    checked = check("traces", result.body, Limits(), NOW)
    assert attributes_of(spans_of(checked.body)[0])["x"] == '{"a":[1,false]}'


@pytest.mark.parametrize("levels", [120, 200])
def test_deep_values_are_cut_and_counted(levels: int) -> None:
    value: dict[str, Any] = {"intValue": 1}
    for _ in range(levels):
        value = {"arrayValue": {"values": [value]}}
    result = converted(json_span(NOW, attributes=[{"key": "x", "value": value}]))
    checked = check("traces", result.body, Limits(), NOW)
    assert (checked.items, checked.mended) == (1, {"value_as_json": 1, "depth_cut": 1})


def test_json_nested_beyond_every_parser_is_refused() -> None:
    with pytest.raises(Rejected, match="not JSON"):
        to_protobuf("traces", b"[" * 100_000)


def test_lone_surrogates_and_bad_utf8_cost_a_character() -> None:
    body = json.dumps(json_request(json_span(name="a\ud800b"), json_span(name="mark"))).encode()
    names = [one.name for one in spans_of(to_protobuf("traces", body.replace(b"mark", b"m\xffk")).body)]
    assert names == ["a\ufffdb", "m\ufffdk"]


def test_unknown_fields_and_nulls_are_ignored() -> None:
    result = converted(json_span(newField={"a": [1]}, attributes=None, status=None))
    assert (len(spans_of(result.body)), result.rejected.total()) == (1, 0)


@pytest.mark.parametrize("one", [5, None, "span", [], {"attributes": [5]}, {"events": {}}, {"name": {}}])
def test_a_span_that_is_none_costs_itself(one: Any) -> None:
    broken = json_span(**one) if isinstance(one, dict) else one
    result = converted(json_span(), broken)
    assert (len(spans_of(result.body)), result.rejected) == (1, {"bad_field": 1})


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"5", b"{", b'{"resourceSpans": 5}', b'{"resourceSpans": [{"resource": 5}]}']
)
def test_what_has_not_the_frame_of_a_request_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected):
        to_protobuf("traces", body)


def test_metrics() -> None:
    point = {
        "timeUnixNano": str(NOW),
        "asDouble": 0.25,
        "attributes": [{"key": "hw.id", "value": {"stringValue": "g"}}],
    }
    count = {"timeUnixNano": NOW, "startTimeUnixNano": str(NOW - 5), "asInt": "-3"}
    total = {"dataPoints": [count], "isMonotonic": True, "aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE"}
    metrics = [
        {"name": "g", "unit": "1", "description": "d", "gauge": {"dataPoints": [point, {"timeUnixNano": "x"}]}},
        {"name": "s", "sum": total},
        {"name": "h", "histogram": {"dataPoints": [{"count": "1"}, {"count": "2"}]}},
    ]
    result = to_protobuf(
        "metrics", json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}).encode()
    )
    assert result.rejected == {"bad_field": 1}
    checked = check("metrics", result.body, Limits(), NOW)
    assert (checked.items, checked.rejected) == (2, {"start_too_early": 2})
    gauge, total_out, _ = (
        ExportMetricsServiceRequest.FromString(checked.body).resource_metrics[0].scope_metrics[0].metrics
    )
    assert (gauge.name, gauge.unit, gauge.gauge.data_points[0].as_double) == ("g", "1", 0.25)
    assert total_out.sum.data_points[0].as_int == -3
    assert (total_out.sum.is_monotonic, total_out.sum.aggregation_temporality) == (True, 2)

"""Checks on receipt: right values for the faults seen in the field, and the compiled scan against its plain twin."""

import base64

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import CHILD_ID, NOW, ROOT_ID, SECOND, attributes_of, metric_request, span, spans_of, trace_request

from tailtrace.errors import Rejected
from tailtrace.ingest.receiver.checks import Checked, check
from tailtrace.ingest.receiver.checks.layout import LAYOUTS
from tailtrace.ingest.receiver.checks.mend import shortened
from tailtrace.ingest.receiver.checks.scan import scan, scan_plain
from tailtrace.ingest.receiver.checks.wire import length_field, varint_field
from tailtrace.ingest.receiver.limits import Limits


def checked(*spans: Span, limits: Limits | None = None) -> Checked:
    return check("traces", trace_request(*spans).SerializeToString(), limits or Limits(), NOW)


def with_value(value: AnyValue) -> Span:
    return span(attributes=[KeyValue(key="x", value=value)])


def test_a_good_body_is_the_very_bytes_received() -> None:
    body = trace_request(span(), span(CHILD_ID, parent_span_id=ROOT_ID)).SerializeToString()
    result = check("traces", body, Limits(), NOW)
    assert result.body is body
    assert (result.items, result.rejected.total(), result.mended.total(), result.first_reason) == (2, 0, 0, "")


def test_an_empty_request_is_good() -> None:
    assert check("traces", b"", Limits(), NOW) == Checked(b"", 0)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"trace_id": b""}, "bad_trace_id", "trace_id has 0 bytes, expected 16"),
        ({"trace_id": b"\0" * 16}, "bad_trace_id", "trace_id is all zeros"),
        ({"trace_id": b"ab" * 16}, "bad_trace_id", "expected 16 (32 is the length of its hex text"),
        ({"trace_id": b"a" * 17}, "bad_trace_id", "trace_id has 17 bytes"),
        ({"span_id": b"a" * 7}, "bad_span_id", "span_id has 7 bytes, expected 8"),
        ({"span_id": b"\0" * 8}, "bad_span_id", "span_id is all zeros"),
        ({"start_time_unix_nano": 0}, "start_too_early", "is missing or 0"),
        ({"start_time_unix_nano": 1}, "start_too_early", "accepted from 2020-01-01T00:00:00Z on"),
        ({"start_time_unix_nano": NOW // 10**9}, "start_too_early", "looks like seconds"),
        ({"start_time_unix_nano": NOW // 10**6}, "start_too_early", "looks like milliseconds"),
        ({"start_time_unix_nano": NOW // 10**3}, "start_too_early", "looks like microseconds"),
        ({"start_time_unix_nano": NOW + 3600 * SECOND}, "start_in_future", "in the future by the receiver's clock"),
        ({"start_time_unix_nano": 7_258_118_400 * SECOND}, "start_in_future", "is 2200-01-01T00:00:00Z"),
        ({"start_time_unix_nano": 2**64 - 1}, "start_in_future", "in the future"),
        ({"end_time_unix_nano": 2**64 - 1}, "end_in_future", "in the future"),
        ({"end_time_unix_nano": NOW + 601 * SECOND}, "end_in_future", "end_time_unix_nano"),
    ],
)  # fmt: skip
def test_a_bad_span_costs_itself_alone(changes: dict[str, object], kind: str, words: str) -> None:
    result = checked(span(), span(**{"span_id": CHILD_ID, **changes}), span(CHILD_ID))
    assert (result.items, result.rejected) == (2, {kind: 1})
    assert words in result.first_reason
    assert [one.span_id for one in spans_of(result.body)] == [ROOT_ID, CHILD_ID]


def test_the_reason_names_the_span() -> None:
    result = checked(span(), span(CHILD_ID, start_time_unix_nano=1), span(ROOT_ID, trace_id=b""))
    assert result.first_reason.startswith("span eee19b7ec3c1b175 ('gateway.request'): start_time_unix_nano")
    assert result.rejected == {"start_too_early": 1, "bad_trace_id": 1}


@pytest.mark.parametrize("end", [0, NOW - 60 * SECOND - 1])
def test_an_end_before_the_start_is_kept_as_sent(end: int) -> None:
    result = checked(span(end_time_unix_nano=end))
    assert (result.items, spans_of(result.body)[0].end_time_unix_nano) == (1, end)


def test_the_clock_skew_of_ten_minutes_is_accepted_and_an_age_limit_is_kept() -> None:
    edge = NOW + 600 * SECOND
    assert checked(span(start_time_unix_nano=edge, end_time_unix_nano=edge)).items == 1
    day = 86_400 * SECOND
    limits = Limits(age_ns=day)
    assert checked(span(start_time_unix_nano=NOW - day), limits=limits).items == 1
    assert checked(span(start_time_unix_nano=NOW - day - 1), limits=limits).rejected == {"start_too_early": 1}


@pytest.mark.parametrize("parent", [b"\0" * 8, b"a" * 7, b"a" * 16])
def test_a_bad_parent_makes_a_root(parent: bytes) -> None:
    result = checked(span(parent_span_id=parent))
    assert (result.items, result.mended) == (1, {"parent_dropped": 1})
    assert spans_of(result.body)[0] == span()


def test_a_bad_link_is_dropped_and_a_good_one_kept() -> None:
    good = Span.Link(trace_id=b"t" * 16, span_id=b"s" * 8)
    bad = Span.Link(trace_id=b"t" * 15, span_id=b"s" * 8)
    result = checked(span(links=[bad, good, Span.Link()]))
    assert result.mended == {"link_dropped": 2}
    assert list(spans_of(result.body)[0].links) == [good]


def test_bytes_that_are_no_utf8_are_kept() -> None:
    body = trace_request(span(name="abcd"), span(CHILD_ID)).SerializeToString().replace(b"abcd", b"ab\xff\xfe")
    result = check("traces", body, Limits(), NOW)
    assert (result.body is body, result.items) == (True, 2)


def test_scalars_and_flat_arrays_are_left_alone() -> None:
    flat = AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue(string_value="a"), AnyValue()]))
    body = trace_request(with_value(flat)).SerializeToString()
    assert check("traces", body, Limits(), NOW).body is body


NESTED = AnyValue(
    kvlist_value=KeyValueList(
        values=[
            KeyValue(key="a", value=AnyValue(int_value=-5)),
            KeyValue(key="b", value=AnyValue(bool_value=True)),
            KeyValue(key="c", value=AnyValue(array_value=ArrayValue(values=[AnyValue(double_value=0.5), AnyValue()]))),
            KeyValue(key="d", value=AnyValue(bytes_value=b"\0\xff")),
            KeyValue(key='"ü"', value=AnyValue(double_value=float("nan"))),
        ]
    )
)


def test_a_nested_value_becomes_compact_json() -> None:
    result = checked(with_value(NESTED))
    assert result.mended == {"value_as_json": 1}
    text = attributes_of(spans_of(result.body)[0])["x"]
    assert text == '{"a":-5,"b":true,"c":[0.5,null],"d":"AP8=","\\"ü\\"":"nan"}'


def test_nested_values_anywhere_and_bytes_are_rewritten() -> None:
    pair = KeyValue(key="x", value=NESTED)
    request = trace_request(span(attributes=[pair], events=[Span.Event(name="e", attributes=[pair])]), span(CHILD_ID))
    request.resource_spans[0].resource.attributes.append(pair)
    request.resource_spans[0].scope_spans[0].scope.attributes.append(pair)
    request.resource_spans[0].scope_spans[0].spans[1].attributes.add(key="raw").value.bytes_value = b"\1\2"
    result = check("traces", request.SerializeToString(), Limits(), NOW)
    assert (result.items, result.mended) == (2, {"value_as_json": 5})
    mended = ExportTraceServiceRequest.FromString(result.body).resource_spans[0]
    text = '{"a":-5,"b":true,"c":[0.5,null],"d":"AP8=","\\"ü\\"":"nan"}'
    assert mended.resource.attributes[1].value.string_value == text
    assert mended.scope_spans[0].scope.attributes[0].value.string_value == text
    assert mended.scope_spans[0].spans[0].events[0].attributes[0].value.string_value == text
    assert attributes_of(mended.scope_spans[0].spans[1]) == {"raw": base64.b64encode(b"\1\2").decode()}


def nest(levels: int) -> bytes:
    """The payload of an AnyValue with an array in an array, `levels` deep, around the number 7."""
    payload = varint_field(3, 7)
    for _ in range(levels):
        payload = length_field(5, length_field(1, payload))
    return payload


def span_bytes(any_value: bytes) -> bytes:
    """A request with one span, whose one attribute has these bytes as its value."""
    pair = length_field(1, b"x") + length_field(2, any_value)
    return length_field(1, length_field(2, length_field(2, span().SerializeToString() + length_field(9, pair))))


def test_values_120_levels_deep_are_cut_at_32() -> None:
    kept = check("traces", span_bytes(nest(32)), Limits(), NOW)
    assert kept.mended == {"value_as_json": 1}
    assert attributes_of(spans_of(kept.body)[0])["x"] == "[" * 32 + "7" + "]" * 32
    cut = check("traces", span_bytes(nest(120)), Limits(), NOW)
    assert cut.mended == {"value_as_json": 1, "depth_cut": 1}
    assert attributes_of(spans_of(cut.body)[0])["x"] == "[" * 32 + '"[cut: nested too deeply]"' + "]" * 32


def test_a_damaged_nested_value_refuses_the_body() -> None:
    with pytest.raises(Rejected, match="nested attribute value"):
        check("traces", span_bytes(length_field(6, b"\x0a\x7f")), Limits(), NOW)


def test_limits_cut_and_count() -> None:
    limits = Limits(value_bytes=40, key_bytes=33, name_bytes=36, attributes=2, events=1, links=1)
    link = Span.Link(trace_id=b"t" * 16, span_id=b"s" * 8)
    big = span(
        name="n" * 100,
        attributes=[KeyValue(key=f"k{i}", value=AnyValue(string_value="é" * 50)) for i in range(5)],
        events=[Span.Event(name="e"), Span.Event(name="f")],
        links=[link, link, link],
    )
    big.attributes[0].key = "k" * 50
    result = checked(big, limits=limits)
    assert result.mended == {
        "name_cut": 1, "key_cut": 1, "value_cut": 2, "attribute_dropped": 3, "event_dropped": 1, "link_over_limit": 2,
    }  # fmt: skip
    one = spans_of(result.body)[0]
    assert one.name == "nnnnnnn...[truncated, was 100 bytes]"
    assert attributes_of(one)["k1"] == "é" * 5 + "...[truncated, was 100 bytes]"
    assert (len(one.attributes), len(one.events), len(one.links)) == (2, 1, 1)


def test_a_huge_array_becomes_text_that_is_cut() -> None:
    values = [AnyValue(int_value=1)] * 1000
    result = checked(with_value(AnyValue(array_value=ArrayValue(values=values))), limits=Limits(value_bytes=64))
    assert result.mended == {"value_as_json": 1, "value_cut": 1}
    assert attributes_of(spans_of(result.body)[0])["x"].startswith("[1,1,1")


@given(st.text(max_size=60), st.integers(min_value=30, max_value=80))
def test_shortened_text_is_text_within_its_limit(text: str, limit: int) -> None:
    data = text.encode()
    out = shortened(data, limit)
    assert len(out) <= max(limit, len(data) if len(data) <= limit else 30)
    out.decode()
    assert (out == data) == (len(data) <= limit)


def test_kinds_beyond_an_enumeration_are_dropped() -> None:
    request = length_field(1, length_field(2, length_field(2, span(kind=0).SerializeToString() + varint_field(6, -1))))
    result = check("traces", request, Limits(), NOW)
    assert (result.items, result.mended) == (1, {"enum_dropped": 1})
    assert spans_of(result.body)[0].kind == 0


def test_points_of_every_kind_are_counted() -> None:
    result = check("metrics", metric_request().SerializeToString(), Limits(), NOW)
    assert (result.items, result.rejected) == (3, {})


def test_a_point_without_a_time_is_rejected() -> None:
    request = metric_request()
    del request.resource_metrics[0].scope_metrics[0].metrics[1]
    request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].time_unix_nano = NOW // 10**6
    result = check("metrics", request.SerializeToString(), Limits(), NOW)
    assert (result.items, result.rejected) == (1, {"start_too_early": 1})
    assert "looks like milliseconds" in result.first_reason


GOOD = trace_request(
    span(), span(CHILD_ID, attributes=[KeyValue(key="x", value=NESTED)], events=[Span.Event(name="e")])
).SerializeToString()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (GOOD[:-1], "a field longer than the message it is in"),
        (b"not protobuf at all", "not an OTLP export request"),
        (b"\0" * 64, "impossible field number"),
        (b"\x0b\x0c", "group"),
        (b"\x08\x01", "a wire type that is not its own"),
        (b"\x0a" + b"\xff" * 10, "a number that does not end"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a field longer than the message"),
        (length_field(1, length_field(2, length_field(2, b"\x38\x05"))), "a wire type that is not its own"),
    ],
)
def test_a_body_that_is_no_request_is_refused_with_the_place(body: bytes, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        check("traces", body, Limits(), NOW)


def test_fields_that_are_not_known_are_skipped() -> None:
    body = GOOD + varint_field(99, 5) + length_field(1000, b"abc")
    assert check("traces", body, Limits(), NOW).items == 2


BOUNDS = np.array([0, NOW, 64, 16, 32, 3, 2, 2], np.int64)


def _result(function: object, data: bytes) -> tuple[int, int, int, list[list[int]]]:
    layout = LAYOUTS["traces"]
    with np.errstate(over="ignore"):
        fault, at, items, edits = function(  # type: ignore[operator]
            np.frombuffer(data, np.uint8), layout.wire, layout.child, layout.rule, layout.kind, layout.single, BOUNDS
        )
    return int(fault), int(at), int(items), edits.tolist()


@settings(deadline=None)  # the first example compiles
@given(st.data())
def test_the_compiled_scan_is_the_plain_one_and_never_reads_outside(data: st.DataObject) -> None:
    body = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                body[at] = data.draw(st.integers(0, 255))
            case 1:
                del body[at : at + data.draw(st.integers(1, 9))]
            case _:
                body[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        if not body:
            break
    assert _result(scan, bytes(body)) == _result(scan_plain, bytes(body))


@given(st.lists(st.sampled_from(["good", "bad", "parent", "nested", "late"]), max_size=12))
def test_what_is_left_is_what_was_good(kinds: list[str]) -> None:
    makers = {
        "good": {}, "bad": {"trace_id": b"x"}, "parent": {"parent_span_id": b"x"},
        "late": {"end_time_unix_nano": 2**63},
        "nested": {"attributes": [KeyValue(key="x", value=NESTED)]},
    }  # fmt: skip
    body = trace_request(
        *(span((i + 1).to_bytes(8), **makers[kind]) for i, kind in enumerate(kinds))
    ).SerializeToString()
    result = check("traces", body, Limits(), NOW)
    kept = [(i + 1).to_bytes(8) for i, kind in enumerate(kinds) if kind not in ("bad", "late")]
    assert [one.span_id for one in spans_of(result.body)] == kept
    assert result.items + result.rejected.total() == len(kinds)
    again = check("traces", result.body, Limits(), NOW)
    assert again.body is result.body

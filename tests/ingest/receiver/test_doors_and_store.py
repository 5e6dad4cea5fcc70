"""Door, journal and engine together: what is acknowledged is stored, and nothing that is accepted stops the store."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import CHILD_ID, ROOT_ID, SECOND, json_request, json_span, metric_request, span, trace_request

from tailtrace.ingest.pipeline import Pipeline
from tailtrace.ingest.receiver import Counters, create_app
from tailtrace.ingest.receiver.checks.wire import length_field, varint_field
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store


class System:
    """The HTTP door before a real pipeline and store."""

    def __init__(self, store: Store, settings: ServerSettings) -> None:
        self.store = store
        self.pipeline = Pipeline(store, settings.data / "journal", settings)
        self.pipeline.start()
        self.counters = Counters()
        self.app = create_app(self.pipeline, settings, self.counters)

    def post(self, *bodies: Any, path: str = "/v1/traces") -> list[int]:
        """Sends each body; JSON for a dict, protobuf for bytes."""

        async def send() -> list[int]:
            transport = httpx.ASGITransport(self.app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
                codes = []
                for body in bodies:
                    kind = "application/json" if isinstance(body, dict) else "application/x-protobuf"
                    content = json.dumps(body).encode() if isinstance(body, dict) else body
                    answer = await client.post(path, content=content, headers={"content-type": kind})
                    codes.append(answer.status_code)
                return codes

        codes = asyncio.run(send())
        self.pipeline.flush()
        return codes

    def rows(self, columns: str = "*", order: str = "Timestamp, SpanId") -> list[dict[str, Any]]:
        return self.store.query(f"SELECT {columns} FROM otel_traces ORDER BY {order}")

    def balanced(self) -> bool:
        """Sent = stored + rejected, and no body lies aside as refused by the store."""
        counts = self.counters.snapshot()["traces"]
        stored = self.store.query("SELECT count() AS n FROM otel_traces")[0]["n"]
        refused = self.pipeline.counters()["refused_bodies"]
        return bool(counts["received"] == stored + sum(counts["rejected"].values()) and refused == 0)


@pytest.fixture
def system(store: Store, settings: ServerSettings) -> Iterator[System]:
    system = System(store, settings)
    yield system
    system.pipeline.stop()


def now() -> int:
    return time.time_ns()


def test_protobuf_and_json_are_stored_alike(system: System) -> None:
    start = now() - 60 * SECOND
    proto = trace_request(span(now=start + 60 * SECOND, attributes=[KeyValue(key="n", value=AnyValue(int_value=42))]))
    same = json_span(now=start + 60 * SECOND, spanId=CHILD_ID.hex())
    assert system.post(proto.SerializeToString(), json_request(same)) == [200, 200]
    first, second = system.rows("* EXCEPT (ReceivedAt)")
    assert {**first, "SpanId": CHILD_ID.hex()} == second
    assert (first["TraceId"], first["SpanId"]) == ("5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174")
    assert (first["ServiceName"], first["SpanKind"], first["Duration"]) == ("gw", "Server", SECOND)
    assert first["SpanAttributes"] == {"n": "42"}
    assert system.balanced()


def test_three_spans_of_which_one_is_bad(system: System) -> None:
    time_now = now()
    body = trace_request(span(now=time_now), span(CHILD_ID, now=time_now, trace_id=b""), span(CHILD_ID, now=time_now))
    assert system.post(body.SerializeToString()) == [200]
    assert [row["SpanId"] for row in system.rows()] == [ROOT_ID.hex(), CHILD_ID.hex()]
    assert system.balanced()


def test_text_that_is_no_utf8_is_stored_with_replacements(system: System) -> None:
    body = trace_request(span(now=now(), name="abcd"), span(CHILD_ID, now=now())).SerializeToString()
    assert system.post(body.replace(b"abcd", b"ab\xff\xfe")) == [200]
    assert system.rows("SpanName")[0]["SpanName"].startswith("ab\ufffd")
    assert len(system.rows()) == 2


def test_a_nested_value_is_stored_as_text(system: System) -> None:
    value = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a", value=AnyValue(int_value=1))]))
    assert system.post(
        trace_request(span(now=now(), attributes=[KeyValue(key="x", value=value)])).SerializeToString()
    ) == [200]
    assert system.rows("SpanAttributes")[0]["SpanAttributes"] == {"x": '{"a":1}'}


@pytest.mark.parametrize("end", [0, 1, -1])
def test_an_end_before_the_start_has_no_duration_and_harms_nothing(system: System, end: int) -> None:
    start = now() - SECOND
    changed = span(start_time_unix_nano=start, end_time_unix_nano=start - 1 if end < 0 else end)
    assert system.post(trace_request(changed, span(CHILD_ID, now=now())).SerializeToString()) == [200]
    assert sorted(row["Duration"] for row in system.rows()) == [0, SECOND]


def test_no_odd_partition_from_mad_clocks(system: System) -> None:
    mad = (
        0,
        1,
        now() // 10**9,
        now() // 10**6,
        now() // 10**3,
        4_102_444_800 * SECOND,
        2**64 - 1,
        now() + 3600 * SECOND,
    )
    spans = [span(start_time_unix_nano=start, end_time_unix_nano=start) for start in mad]
    assert system.post(trace_request(*spans, span(now=now())).SerializeToString()) == [200]
    assert len(system.rows()) == 1
    assert system.balanced()
    assert sum(system.counters.snapshot()["traces"]["rejected"].values()) == len(mad)


def raw_span(extra: bytes) -> bytes:
    """A request of one good span with these fields appended to it."""
    return length_field(1, length_field(2, length_field(2, span(now=now()).SerializeToString() + extra)))


def attribute(*value: bytes) -> bytes:
    """An attribute `k` whose value is made of these fields."""
    return length_field(9, length_field(1, b"k") + length_field(2, b"".join(value)))


TEXT, FOUR, FIVE = length_field(1, b"v"), varint_field(3, 4), varint_field(3, 5)
ARRAY = length_field(5, length_field(1, FOUR))

EXTRAS = {
    "kind of 64 bits": varint_field(6, -1),
    "kind of 33 bits": varint_field(6, 2**33),
    "status code of 64 bits": length_field(15, varint_field(3, -1)),
    "bool of 64 bits": attribute(varint_field(2, 2**63)),
    "bool of two": attribute(varint_field(2, 2)),
    "bool of two in an array": attribute(length_field(5, length_field(1, varint_field(2, 2)))),
    "two values in one oneof": attribute(TEXT, FIVE),
    "two values in an array's element": attribute(length_field(5, length_field(1, TEXT + FIVE))),
    "one field of a oneof twice": attribute(FOUR, FIVE),
    "array twice in one value": attribute(ARRAY, ARRAY),
    "array, then text": attribute(ARRAY, TEXT),
    "value twice in one attribute": length_field(9, length_field(1, b"k") + length_field(2, FOUR) * 2),
    "attribute without key and value": length_field(9, b""),
    "status twice": length_field(15, length_field(2, b"a")) + length_field(15, varint_field(3, 2)),
    "trace id twice": length_field(1, b"t" * 16),
    "name twice": length_field(5, b"second"),
    "unknown fields": varint_field(200, 1) + length_field(3000, b"x") + b"\x85\x01abcd",
    "event of the year 2500": length_field(11, b"\x09" + (16_725_225_600 * SECOND).to_bytes(8, "little")),
    "event of all ones": length_field(11, b"\x09" + b"\xff" * 8),
    "overlong varints": b"\xb0\x80\x00\x82\x80\x00",
    "nothing in an event and a link": length_field(11, b"") + length_field(13, b""),
    "zero bytes in text": length_field(5, b"a\0b"),
}  # fmt: skip


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
def test_odd_but_legal_bodies_do_not_stop_the_store(system: System, extra: bytes) -> None:
    good = trace_request(span(CHILD_ID, now=now())).SerializeToString()
    assert system.post(raw_span(extra), good) == [200, 200]
    assert system.balanced()
    assert len(system.rows()) == 2


NAMED_SCOPE, EMPTY = length_field(1, length_field(1, b"a")), length_field(1, b"")

ODD_REQUESTS = {
    "resource twice": lambda s: length_field(1, length_field(1, b"") * 2 + length_field(2, length_field(2, s))),
    "scope twice": lambda s: length_field(1, length_field(2, NAMED_SCOPE * 2 + length_field(2, s))),
    "scope after its spans": lambda s: length_field(1, length_field(2, length_field(2, s) + length_field(1, b""))),
    "empty levels": lambda s: EMPTY + length_field(1, length_field(2, b"") + length_field(2, length_field(2, s))),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_REQUESTS)
def test_odd_frames_do_not_stop_the_store(system: System, name: str) -> None:
    assert system.post(ODD_REQUESTS[name](span(now=now()).SerializeToString())) == [200]
    assert system.balanced()
    assert len(system.rows()) == 1


def test_metrics_are_stored(system: System) -> None:
    assert system.post(metric_request(now()).SerializeToString(), path="/v1/metrics") == [200]
    rows = system.store.query("SELECT MetricName, Value FROM otel_metrics_gauge ORDER BY TimeUnix")
    assert rows == [
        {"MetricName": "hw.gpu.utilization", "Value": 0.5},
        {"MetricName": "hw.gpu.utilization", "Value": 1.0},
    ]


EMPTY_LISTS = {
    "bucket counts": (9, length_field(6, b"")),
    "bounds": (9, length_field(7, b"")),
    "positive buckets": (10, length_field(8, varint_field(1, 4) + length_field(2, b""))),
    "negative buckets, alone": (10, length_field(9, length_field(2, b""))),
}  # fmt: skip


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("name", EMPTY_LISTS)
def test_an_empty_list_of_numbers_does_not_stop_the_store(system: System, name: str, first: bool) -> None:
    """Legal, and some encoders write it; the engine's reader takes it for damage."""
    kind, empty = EMPTY_LISTS[name]
    time_field = b"\x19" + now().to_bytes(8, "little")
    point = length_field(1, empty + time_field if first else time_field + empty)
    body = length_field(1, length_field(2, length_field(2, length_field(1, b"m") + length_field(kind, point))))
    assert system.post(body, path="/v1/metrics") == [200]
    table = {9: "otel_metrics_histogram", 10: "otel_metrics_exp_histogram"}[kind]
    assert system.store.query(f"SELECT MetricName FROM {table}") == [{"MetricName": "m"}]


@pytest.mark.parametrize("extra", [varint_field(6, 2**62), length_field(8, varint_field(1, 2**62))])
def test_numbers_beyond_32_bits_do_not_stop_the_store(system: System, extra: bytes) -> None:
    """Scale and offset of an exponential histogram: the point is kept without them."""
    point = length_field(1, b"\x19" + now().to_bytes(8, "little") + extra)
    body = length_field(1, length_field(2, length_field(2, length_field(1, b"m") + length_field(10, point))))
    assert system.post(body, path="/v1/metrics") == [200]
    rows = system.store.query("SELECT MetricName, Scale, PositiveOffset FROM otel_metrics_exp_histogram")
    assert rows == [{"MetricName": "m", "Scale": 0, "PositiveOffset": 0}]


def test_a_record_with_two_bodies_is_rejected_alone(system: System) -> None:
    time_field = b"\x09" + now().to_bytes(8, "little")
    records = [time_field + length_field(5, TEXT), time_field + length_field(5, TEXT) + length_field(5, FOUR)]
    body = length_field(1, length_field(2, b"".join(length_field(2, record) for record in records)))
    assert system.post(body, path="/v1/logs") == [200]
    assert system.store.query("SELECT Body FROM otel_logs") == [{"Body": "v"}]


def test_spans_of_many_days_in_one_body(system: System) -> None:
    day = 86_400 * SECOND
    spans = [span((i + 1).to_bytes(8), now=now() - i * day) for i in range(150)]
    assert system.post(trace_request(*spans).SerializeToString()) == [200]
    assert (len(system.rows()), system.balanced()) == (150, True)


def test_a_large_value_is_cut_with_its_length(system: System) -> None:
    value = AnyValue(string_value="x" * 5_000_000)
    attributes = [
        KeyValue(key="big", value=value),
        *(KeyValue(key=f"k{i}", value=AnyValue(int_value=i)) for i in range(10_000)),
    ]
    big = span(now=now(), name="n" * 200_000, attributes=attributes, events=[Span.Event(name="e" * 100_000)])
    assert system.post(trace_request(big).SerializeToString()) == [200]
    row = system.rows("SpanAttributes, SpanName")[0]
    assert row["SpanAttributes"]["big"].endswith("...[truncated, was 5000000 bytes]")
    assert row["SpanName"].endswith("...[truncated, was 200000 bytes]")
    assert len(row["SpanAttributes"]) == 1024
    assert system.counters.snapshot()["traces"]["mended"] == {"value_cut": 1, "name_cut": 2, "attribute_dropped": 8977}

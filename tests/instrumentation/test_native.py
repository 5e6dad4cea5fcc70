"""The pieces in C mean what their twins in Python mean, survive hostile input, and hold nothing."""

from __future__ import annotations

import contextvars
import gc
import random
import socket
import sys
import time
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace

from tailtrace.instrumentation import answer, context, encode, gateway, ids, sse
from tailtrace.instrumentation import record as record_module
from tailtrace.instrumentation.answer import plain_sender
from tailtrace.instrumentation.buffer import PlainBufferBase
from tailtrace.instrumentation.content import Content
from tailtrace.instrumentation.gateway import plain_begin
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.record import CURRENT, Record, Remote, Stage, streaming_now
from tailtrace.instrumentation.testing import FakeClock
from tailtrace.instrumentation.tokens import PlainTokenMarks, PlainTokenTimes, TokenTimes

pytestmark = pytest.mark.skipif(native is None, reason="the C extension is not built, or turned off")

INT64 = st.integers(-(2**63), 2**63 - 1)
marks = st.lists(st.integers(0, 2**62), max_size=80).map(sorted) | st.lists(
    st.sampled_from([0, 1, 19_999_999, 20_000_000, 80_000_000, 10**12, 3 * 10**16]), max_size=200
).map(lambda gaps: [sum(gaps[:at]) for at in range(len(gaps))])


def folded(times: Any) -> tuple[Any, ...]:
    return (
        times.first_ns, times.last_ns, times.count, times.counts, times.stalls, times.gaps_text(),
        times.stalls_text(1_000),
    )  # fmt: skip


@given(marks, st.lists(st.integers(0, 40), max_size=6))
def test_token_times_are_folded_alike_in_any_pieces(times: list[int], cuts: list[int]) -> None:
    ours, plain = native.TokenTimes(), PlainTokenTimes()
    kept, listed = native.TokenMarks(), PlainTokenMarks(times)
    for mark in times:
        kept.append(mark)
    for cut in cuts:
        ours.fold(kept.take(cut))
        plain.fold(listed.take(cut))
        assert len(kept) == len(listed)
    ours.fold(list(kept))
    plain.fold(listed)
    assert folded(ours) == folded(plain)


@given(st.lists(INT64, max_size=50))
def test_marks_out_of_order_break_nothing(times: list[int]) -> None:
    ours = native.TokenTimes()
    ours.fold(times)
    assert ours.count == len(times)
    assert sum(ours.counts.values()) == max(0, len(times) - 1)
    assert ours.gaps_text().count(":") == len(ours.counts)
    assert len(ours.stalls) <= 8
    ours.stalls_text(-5)


def test_marks_in_close_order_are_those_of_the_clock() -> None:
    """Told by the processor's counter between readings of the clock, where the kernel keeps its time by it."""
    marks = native.TokenMarks()
    apart = 0
    for _ in range(50_000):
        before = time.monotonic_ns()
        marks.mark()
        apart = max(apart, before - marks[-1], marks[-1] - time.monotonic_ns())
    assert apart < 20_000
    assert list(marks) == sorted(marks)


def test_marks_refuse_what_is_no_time() -> None:
    kept = native.TokenMarks()
    for wrong in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            kept.append(wrong)
    for wrong in ("1", None, 1.5):
        with pytest.raises(TypeError):
            kept.append(wrong)
        with pytest.raises(TypeError):
            native.TokenTimes().fold([1, wrong])
    with pytest.raises(IndexError):
        kept.pop()
    with pytest.raises(IndexError):
        kept[0]
    with FakeClock(start_ns=7) as now:
        kept.mark()
        now.advance_ms(1)
        kept.mark()
    assert list(kept) == [7, 1_000_007]
    assert kept[-1] == 1_000_007
    assert len(kept.take(-3)) == 0
    assert list(kept.take(10**9)) == [7, 1_000_007]


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=9)
values = st.recursive(
    scalars | st.sampled_from(["\ud800", "x" * 20_000, float("nan"), 2**64, -1, 127, 128, 16_383, 16_384]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
attributes = st.dictionaries(st.text(max_size=200) | st.sampled_from(["k" * 130, "\udfff"]), values, max_size=5)
stages = st.lists(
    st.tuples(
        st.sampled_from(["queue", "prefill", "custom", "my own", "\ud800"]) | st.text(max_size=8),
        st.none() | attributes, st.sampled_from(["", "ValueError", "\ud800"]), st.integers(0, 3), st.booleans(),
    ),
    max_size=5,
)  # fmt: skip


@given(attributes, stages, st.booleans(), st.integers(0, 2**62), st.sampled_from([b"", b"\x2a\x01x" * 70]))
def test_spans_are_the_same_bytes(
    own: dict[str, Any], given_stages: list[Any], rooted: bool, start_ns: int, status: bytes
) -> None:
    record = Record("POST /v1", 2, None if rooted else Remote(b"t" * 16, b"p" * 8), start_ns=start_ns)
    record.end_ns = start_ns + 5
    for name, of_stage, error, parent, seen in given_stages:
        stage = Stage(name, of_stage)
        others: list[Any] = [record, None, Remote(b"t" * 16, b"r" * 8), record.stages[-1] if record.stages else record]
        stage.parent, stage.start_ns, stage.end_ns, stage.error = others[parent], start_ns, start_ns + 1, error
        if seen:
            assert len(stage.span_id) == 8
        record.stages.append(stage)
    fresh = random.Random(1).randbytes(8 * len(given_stages))
    arguments = (record, b"\x2a\x01n", own, status, fresh, 1_700_000_000_000_000_000)
    assert native.encode_request(*arguments) == encode.encode_request(*arguments)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trace_id", b"short"), ("trace_id", "x" * 16), ("span_id", None), ("parent_span_id", b"1"), ("start_ns", "x"),
        ("start_ns", -(2**62)), ("end_ns", 2**70), ("stages", ()), ("stages", [None]),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_encoded_is_an_error_and_no_crash(field: str, value: Any) -> None:
    record = Record("POST", 2, start_ns=1)
    record.end_ns = 2

    def encoded() -> bytes:
        setattr(record, field, value)
        made: bytes = native.encode_request(record, b"", {}, b"", b"x" * 8, 0)
        return made

    with pytest.raises((TypeError, ValueError, OverflowError)):
        encoded()


class Flow:
    write_paused = False


class Torn(dict[str, Any]):
    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("torn")


messages = st.one_of(
    st.builds(dict, body=st.binary(max_size=3), more_body=st.booleans() | st.sampled_from([0, 1, None, "yes"])),
    st.just({"type": "http.response.body"}),
    st.builds(UserDict, more_body=st.booleans()),
)


@given(
    st.lists(st.tuples(messages, st.booleans(), st.sampled_from([None, True, False])), max_size=80),
    st.sampled_from([None, Flow, True]),
)
def test_chunks_take_the_same_way(steps: list[Any], kind: Any) -> None:
    told: list[list[Any]] = [[], []]
    flow: Any = Flow() if kind is Flow else kind

    def of(log: list[Any], times: Any, make: Any) -> Any:
        ways = [lambda message, way=way: log.append((way, message)) or way for way in ("slow", "careful", "send")]
        return make(*ways, flow, times, None, None)

    ours_times, plain_times = native.TokenMarks(), PlainTokenMarks()
    with FakeClock() as now:
        ours, plain = of(told[0], ours_times, native.sender), of(told[1], plain_times, plain_sender)
        for message, paused, switch in steps:
            now.advance_ms(1)
            if kind is Flow:
                flow.write_paused = paused
            if switch is not None:
                ours.switch(switch)
                plain.switch(switch)
            assert ours.send(message) == plain.send(message)
    assert told[0] == told[1]
    assert list(ours_times) == list(plain_times)
    assert ours.close() == plain.close()
    assert ours.close() == plain.close() == []
    for switch in (False, True):
        ours.switch(switch)
        plain.switch(switch)
        assert ours.send({"more_body": True}) == plain.send({"more_body": True}) == "send"


heads = st.lists(st.tuples(st.sampled_from([b"content-type", b"Content-Type", b"content-length", b"x"]),
    st.sampled_from([b"text/event-stream", b"Text/Event-Stream; charset=utf-8", b"application/json", b"text/plain"])
), max_size=3)  # fmt: skip
TEXT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
bodies = st.sampled_from([
    TEXT, b"", TEXT[:20], TEXT[20:], TEXT + TEXT, TEXT.replace(b"a", b""), b"data: [DONE]\n\n", b": ping\n\n",
    b'data: {"model":"m","choices":[{"delta":{"content":"a"}}]}\n\n', b'data: {"choices":[{"delta":{"role":"x"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3}}\n\n', b"plain",
])  # fmt: skip


class Draining(Flow):
    async def drain(self) -> None:
        """Nothing is held back."""


class Cycle:
    def __init__(self, kind: Any) -> None:
        self.log: list[Any] = []
        if kind is not None:
            self.flow = kind()

    async def send(self, message: Any) -> None:
        self.log.append(message)


def answered(messages: list[Any], flow: Any, sender: Any) -> list[Any]:
    """Everything that an answer and its record know after these messages."""
    cycle = Cycle(flow)
    record = Record("GET", 2, start_ns=1)
    with FakeClock() as now, pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer, "_sender", sender)
        of = answer.Answer(record, cycle.send)
        for message, paused in messages:
            now.advance_ms(1)
            if flow is not None:
                cycle.flow.write_paused = paused
            with pytest.raises(StopIteration):
                next(iter(of.send(message).__await__()))
        known = {name: value for name, value in vars(of).items() if type(value) in (int, bool, list)}
        seen: list[Any] = [known, len(streaming_now)]
        of.finish(None)
    streaming_now.clear()
    encoded = encode.request_attributes(record)
    return [cycle.log, *seen, record.first_ns, record.answer_ns, record.outcome, record.error, encoded]


@given(
    st.sampled_from([200, 404]), heads,
    st.lists(st.tuples(bodies, st.sampled_from([True, True, True, False]), st.booleans()), max_size=9),
    st.sampled_from([None, Flow, Draining]),
)  # fmt: skip
def test_the_start_of_a_stream_is_read_alike(status: int, headers: Any, chunks: list[Any], flow: Any) -> None:
    messages: list[Any] = [({"type": "http.response.start", "status": status, "headers": headers}, False)]
    messages += [
        ({"type": "http.response.body", "body": body, "more_body": more}, paused) for body, more, paused in chunks
    ]
    assert answered(messages, flow, native.sender) == answered(messages, flow, plain_sender)


pieces = st.sampled_from([
    b'"delta"', b":", b" ", b"\x0b", b"{", b"}", b'"content"', b'"', b"x", b"data:", b"\n", b'"delta":{"content":"x',
    b'"delta" : {"role":"a","content" : "',
])  # fmt: skip


@given(st.lists(pieces, max_size=12).map(b"".join), st.booleans())
def test_text_of_a_chat_chunk_is_seen_alike(body: bytes, framed: bool) -> None:
    body = b"data:" + body + b"\n\n" if framed else body
    assert native.one_chat_text(body) == sse.plain_one_chat_text(body)


ends = st.lists(
    bodies
    | st.sampled_from([
        TEXT.replace(b"choices", b'index":1,"choices'), TEXT.replace(b"choices", b'index":0,"choices'),
        TEXT.replace(b"choices", b'eval_count":3,"choices'), bytearray(TEXT), None,
        *(TEXT.replace(b"choices", name + b'":3,"choices') for name in (
            b"prompt_tokens", b"tokens_predicted", b"_", b"tokens", b"__length", b"promptTokenCount",
            b"tokens_", b"_token",
        )), TEXT.replace(b"\n\n", b"_\n"),
    ]), max_size=5,
)  # fmt: skip


hexes = st.sampled_from([
    b"00-5b8efff798038103d269b633813fc60c-eee19b7ec3c1b174-01",
    b"00-5b8efff798038103d269b633813fc60c-eee19b7ec3c1b174-00", b"00-0-0-0", b"", b"\xff",
])  # fmt: skip
request_headers: Any = st.lists(
    st.one_of(
        st.tuples(st.just(b"traceparent"), hexes),
        st.tuples(st.just(b"tracestate"), st.sampled_from([b"tailtrace=8", b"a=\xff", b""])),
        st.tuples(st.just(b"content-length"), st.sampled_from([b"0", b"12", b"", b"-1", b"1_0", b"9" * 17, b"9" * 18])),
        st.tuples(st.sampled_from([b"x-request-id", b"region"]), st.sampled_from([b"a\xe9", b"x" * 2000])),
        st.tuples(st.just(b"transfer-encoding"), st.just(b"chunked")),
        st.tuples(st.binary(max_size=4), st.binary(max_size=4)),
    ),
    max_size=7,
)


@given(
    request_headers, st.sampled_from([0, 1, 3]), st.sampled_from([b"", b"region"]),
    st.sampled_from([None, 5, 7_000_000]), st.booleans(), st.integers(0, 1000),
)  # fmt: skip
def test_requests_begin_alike(
    headers: Any, sample: int, region: bytes, begin_ns: int | None, has_method: bool, seed: int
) -> None:
    scope: Any = {"type": "http", "path": "/", "headers": headers}
    if begin_ns is not None:
        scope["tailtrace.begin_ns"] = begin_ns
    if has_method:
        scope["method"] = "PUT"
    before = list(headers)

    def begun(begin: Any) -> list[Any]:
        ids.seed(seed)
        with FakeClock(start_ns=9_000_000):
            record, inner, has_body = begin(scope, sample, region)
        assert inner.pop("tailtrace.request") is record
        stages = [(stage.name, stage.start_ns, stage.end_ns, stage.parent is record) for stage in record.stages]
        fields = [
            getattr(record, name)
            for name in (
                "name", "kind", "trace_id", "span_id", "parent_span_id", "trace_state", "sampled", "weight", "outcome",
                "error", "folded", "streaming", "tail", "content", "engine", "attributes", "start_ns", "end_ns",
                "first_ns", "answer_ns", "waits",
            )
        ]  # fmt: skip
        return [fields, stages, list(record.times), inner, has_body]

    try:
        assert begun(native.begin) == begun(plain_begin)
    finally:
        ids.seed(None)
    assert scope["headers"] == before


@pytest.mark.parametrize(
    "scope",
    [
        UserDict(headers=[]), {"headers": ()}, {"headers": [[b"a", b"b"]]}, {"headers": [(b"a", "b")]},
        {"headers": [], "tailtrace.begin_ns": "x"}, {},
    ],
)  # fmt: skip
def test_a_scope_of_another_kind_is_left_to_python(scope: Any) -> None:
    assert native.begin(scope, 1, b"") is None


def test_beside_another_library_s_span_python_looks() -> None:
    token = otel_context.attach(otel_context.set_value("a", 1))
    try:
        assert native.begin({"headers": []}, 1, b"") is None
    finally:
        otel_context.detach(token)


@pytest.mark.parametrize("kind", [context.PlainEntered, context.Entered])
def test_a_record_is_current_until_it_is_left(kind: Any) -> None:
    record = Record("GET")
    outer = otel_context.attach(otel_context.set_value("a", 1))
    try:
        around = otel_context.get_current()
        entered = kind(record)
        assert CURRENT.get() is record
        assert otel_context.get_value("a") == 1
        assert otel_trace.get_current_span().get_span_context().span_id.to_bytes(8, "big") == record.span_id
        contextvars.Context().run(entered.leave)
        assert CURRENT.get() is record
        entered.leave()
        assert CURRENT.get() is None
        assert otel_context.get_current() is around
        entered.leave()
    finally:
        otel_context.detach(outer)


class Named:
    def __init__(self, path: Any) -> None:
        if path is not None:
            self.path = path


paths = st.sampled_from([None, 5, "", "/a", "/ü" * 150, "\ud800"])


@given(
    st.none() | st.builds(lambda path: {"route": Named(path)}, paths),
    st.sampled_from([{}, {"app": 1}, {"endpoint": 1}]), st.sampled_from([{}, {"path": "/x" * 200}]),
    st.sampled_from(["GET", ""]),
)  # fmt: skip
def test_a_request_is_named_alike(route: Any, known: Any, path: Any, method: str) -> None:
    def named(way: Any) -> tuple[Any, Any]:
        record = Record(method)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gateway, "native", way)
            gateway.name_after_route(record, {**(route or {}), **known, **path})
        return record.name, record.attributes

    assert named(native) == named(None)


class Engine:
    def __init__(self, fails: bool) -> None:
        self.seen: list[int] = []
        self.fails = fails

    def close(self, record: Any, end_ns: int) -> None:
        self.seen.append(end_ns)
        if self.fails:
            raise LookupError("engine")


@given(
    st.tuples(st.integers(0, 5), st.integers(0, 2)), st.integers(-5, 90), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from([None, False, True]),
)  # fmt: skip
def test_a_request_ends_alike(
    connection: Any, end_ns: int, sampled: bool, streams: bool, over: bool, engine: bool | None
) -> None:
    def ended(finish: Any) -> list[Any]:
        put: list[Any] = []
        record = Record("GET", 2, start_ns=40)
        record.sampled = sampled
        record.engine = None if engine is None else Engine(engine)
        if streams:
            record.begin_tokens(41)
        if over:
            record.end_ns = 50
        failed = ""
        with pytest.MonkeyPatch.context() as patch, FakeClock(start_ns=60):
            patch.setattr(record_module, "submit", put.append)
            try:
                finish(record, 200, connection, end_ns)
            except LookupError as error:
                failed = str(error)
        left = streaming_now.pop(id(record), None) is None
        seen = record.engine.seen if record.engine is not None else None
        return [record.end_ns, record.outcome, record.attributes, put == [record], left, seen, failed]

    # A request without an end of its own ends now; the answer's is never 0.
    end_ns = end_ns or 1
    assert ended(native.finish_well) == ended(answer.plain_finish_well)


class Transport:
    def __init__(self, sock: Any) -> None:
        self.sock = sock

    def get_extra_info(self, name: str) -> Any:
        assert name == "socket"
        return self.sock


class Connected:
    def __init__(self, transport: Any) -> None:
        self.transport = transport


def test_a_client_is_found_alike() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        for transport in (None, Transport(None), Transport(sock)):
            cycle = Connected(transport)
            ours, plain = native.client_of(cycle), answer.plain_client_of(cycle)
            assert (ours is None, ours and ours[0] > 0) == (plain is None, plain and plain[0] > 0)
        for cycle in (None, Connected(5), Connected(Transport(5))):
            for find in (native.client_of, answer.plain_client_of):
                with pytest.raises(AttributeError):
                    find(cycle)


puts = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "take", "clear"]), st.integers(0, 6)), max_size=40)


@given(puts, st.integers(1, 12), st.integers(1, 9000), st.integers(1, 9))
def test_a_buffer_keeps_and_drops_alike(steps: Any, max_spans: int, max_bytes: int, wake: int) -> None:
    def item(of: int) -> Any:
        if of == 0:
            return Stage("lone")
        record = Record("GET")
        record.stages = [Stage("a")] * of
        for at in range(of * 10):
            record.times.append(at)
        if of > 3:
            record.tail = []
        if of > 4:
            record.content = Content(1).gather()
            record.content.asked.add(b"x" * 100)
        return record

    items = [(do, item(of), of) for do, of in steps]

    def told(make: Any) -> list[Any]:
        log: list[Any] = []
        lost = 0

        def lose(reason: str, spans: int) -> None:
            nonlocal lost
            assert reason == "full"
            lost += spans

        buffer = make(max_spans, max_bytes, wake, lose, log.append)
        for do, one, of in items:
            if do == "put":
                buffer.put(one)
            elif do == "take":
                log.append([(id(one), spans) for one, spans in buffer.take(of)])
            else:
                log.append(buffer.clear())
            log.append((buffer.spans, buffer.bytes, lost))
        return log

    assert told(native.BufferBase) == told(PlainBufferBase)


def test_what_is_dropped_may_put_again() -> None:
    class Ending:
        def __del__(self) -> None:
            if left:
                left.pop()
                buffer.put(Stage("after"))

    left = [1] * 30
    lost: list[int] = []
    buffer = native.BufferBase(3, 1 << 20, 100, lambda reason, spans: lost.append(spans), len)
    for _ in range(40):
        buffer.put(Ending())
    while buffer.spans:
        buffer.take(1)
    assert not left
    assert buffer.bytes == 0
    assert sum(lost) > 40
    gc.collect()


@given(ends, st.integers(0, 6), st.sampled_from(["ok", "cancelled"]), st.booleans())
def test_the_end_of_a_stream_is_read_alike(tail: list[Any], marks: int, outcome: Any, model_known: bool) -> None:
    def read(piece: Any) -> tuple[dict[str, Any], list[int]]:
        record = Record("GET", 2, start_ns=1)
        record.outcome = outcome
        record.tail = [{"type": "http.response.body"} if body is None else {"body": body} for body in tail]
        record.first_ns = 5 if marks else 0
        for at in range(marks):
            record.times.append(5 + at)
        if model_known:
            record.attributes["gen_ai.response.model"] = "known"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encode, "native", piece)
            encode._read_tail(record)
        return record.attributes, list(record.times)

    assert read(native) == read(None)


whole_records = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["GET /a", "\ud800", "ü" * 3000]),
        "outcome": st.sampled_from(["ok", "rejected", "cancelled", "error", "timeout", "\ud800"]),
        "error": st.sampled_from(["", "ValueError"]),
        "streaming": st.sampled_from([None, True, False]),
        "first_ns": st.sampled_from([0, 5]),
        "answer_ns": st.sampled_from([0, 9]),
        "weight": st.sampled_from([1, 8]),
        "kind": st.sampled_from([1, 3]),
        "parent_span_id": st.sampled_from([b"", b"p" * 8]),
        "stages": st.lists(st.sampled_from(["queue", "mine", "\ud800"]), max_size=4),
        "folded": st.just(TokenTimes),
        "attributes": attributes
        | st.sampled_from([{"tailtrace.gaps": "mine"}, {"tailtrace.outcome": 1}, {"gen_ai.response.model": "m"}]),
    },
)


@given(whole_records, st.none() | ends, marks)
def test_whole_records_are_the_same_bytes(fields: dict[str, Any], tail: Any, times: list[int]) -> None:
    def encoded(encode_one: Any) -> bytes:
        ids.seed(1)
        record = Record("GET", 2, start_ns=3)
        record.end_ns = 10**9
        fresh: dict[str, Any] = {"attributes": dict, "stages": list, "folded": lambda make: make()}
        for name, value in fields.items():
            setattr(record, name, fresh.get(name, lambda value: value)(value))
        names, record.stages = record.stages, []
        for at, name in enumerate(names):
            stage = Stage(name, {"a": at})
            stage.parent = record.stages[at // 2] if at else record
            stage.start_ns, stage.end_ns = 5, 6
            record.stages.append(stage)
        record.tail = tail and [{"type": "http.response.body"} if body is None else {"body": body} for body in tail]
        for mark in times:
            record.times.append(mark)
        made: bytes = encode_one(record, 1_700_000_000_000_000_000)
        assert record.tail is None
        assert record.stages == []
        return made

    try:
        assert encoded(encode.encode_record) == encoded(encode.plain_encode_record)
    finally:
        ids.seed(None)


def test_an_ordinary_stream_is_encoded_without_python() -> None:
    def record_of(**fields: Any) -> Record:
        record = Record("GET /a", 2, start_ns=3)
        record.begin_tokens(7)
        streaming_now.clear()
        record.times.append(9)
        record.end_ns = 12
        record.tail = [{"body": TEXT}, {"body": b""}]
        record.attributes["http.response.status_code"] = 200
        for name, value in fields.items():
            setattr(record, name, value)
        return record

    assert b"tailtrace.last_token_ns" in native.encode_record(record_of(), 0)
    for left in (
        {"error": "ValueError"}, {"weight": 2}, {"content": Content(1).gather()},
        {"trace_id": b"short"}, {"tail": [{"body": b"data: x"}]}, {"times": []}, {"name": 5}, {"attributes": None},
    ):  # fmt: skip
        record = record_of(**left)
        assert native.encode_record(record, 0) is None
        assert len(record.times) == (0 if "times" in left else 2)
        assert record.tail


def test_what_the_server_or_the_message_raises_reaches_the_caller() -> None:
    def raises(message: Any) -> Any:
        raise KeyError("server")

    sender = native.sender(raises, raises, raises, Flow, native.TokenMarks(), None, None)
    sender.switch(True)
    send = sender.send
    with pytest.raises(RuntimeError, match="torn"):
        send(Torn())
    with pytest.raises(KeyError, match="server"):
        send({"more_body": True})
    for wrong in ({}, {"other": {}}, {"message": {}, "other": {}}):
        with pytest.raises(TypeError):
            send(**wrong)
    with pytest.raises(TypeError):
        send({}, message={})
    with pytest.raises(TypeError):
        send(5)
    with pytest.raises(TypeError):
        native.sender(raises, raises, raises, None, [], None, None)


def test_a_deep_nest_of_stages_is_let_go() -> None:
    outer: Any = None
    for _ in range(50_000):
        stage = Stage("deep")
        stage.parent = outer
        outer = stage
    assert outer is not None
    del outer, stage


def test_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not into the exporter of a test before.
    monkeypatch.setattr(record_module, "submit", lambda item: None)
    buffer = native.BufferBase(10, 1 << 20, 100, len, len)

    def once() -> None:
        record, inner, _ = native.begin({"headers": [(b"content-length", b"3"), (b"a", b"b")]}, 1, b"")
        del inner
        buffer.put(record)
        entered = context.Entered(record)
        for _ in range(3):
            with Stage("queue", {"a": 1}), Stage("inner"):
                pass
        with pytest.raises(ValueError, match="x"), Stage("failing"):
            raise ValueError("x")
        entered.leave()
        assert len(buffer.take(9)) == 1
        mark = record.token_marker()
        for _ in range(40):
            mark()
        sender = native.sender(len, len, len, Flow, record.times, None, record)
        sender.switch(True)
        send = sender.send
        for _ in range(6):
            send({"more_body": True})
            send(message={"more_body": True})
        assert len(sender.close()) == 5
        record.finish()
        assert len(encode.encode_record(record, 0)) > 300

    def blocks() -> int:
        gc.collect()
        return sys.getallocatedblocks()

    for _ in range(20):
        once()
    before = blocks()
    for _ in range(300):
        once()
    assert blocks() - before < 100

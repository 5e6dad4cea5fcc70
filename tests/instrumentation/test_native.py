"""The pieces in C mean what their twins in Python mean, survive hostile input, and hold nothing."""

from __future__ import annotations

import gc
import random
import sys
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrace.instrumentation import answer, encode, sse
from tailtrace.instrumentation.answer import plain_sender
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.record import CURRENT, Record, Remote, Stage, streaming_now
from tailtrace.instrumentation.testing import FakeClock
from tailtrace.instrumentation.tokens import PlainTokenMarks, PlainTokenTimes

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
    setattr(record, field, value)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        native.encode_request(record, b"", {}, b"", b"x" * 8, 0)


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


@given(st.lists(st.tuples(messages, st.booleans(), st.sampled_from([None, True, False])), max_size=80), st.booleans())
def test_chunks_take_the_same_way(steps: list[Any], has_flow: bool) -> None:
    told: list[list[Any]] = [[], []]
    flow = Flow() if has_flow else None

    def of(log: list[Any], times: Any, make: Any) -> Any:
        ways = [lambda message, way=way: log.append((way, message)) or way for way in ("slow", "careful", "send")]
        return make(*ways, flow, times, None, None)

    ours_times, plain_times = native.TokenMarks(), PlainTokenMarks()
    with FakeClock() as now:
        ours, plain = of(told[0], ours_times, native.sender), of(told[1], plain_times, plain_sender)
        for message, paused, switch in steps:
            now.advance_ms(1)
            if flow is not None:
                flow.write_paused = paused
            if switch is not None:
                ours[1](switch)
                plain[1](switch)
            assert ours[0](message) == plain[0](message)
    assert told[0] == told[1]
    assert list(ours_times) == list(plain_times)
    assert ours[2]() == plain[2]()
    assert ours[2]() == plain[2]() == []


heads = st.lists(st.tuples(st.sampled_from([b"content-type", b"Content-Type", b"content-length", b"x"]),
    st.sampled_from([b"text/event-stream", b"Text/Event-Stream; charset=utf-8", b"application/json", b"text/plain"])
), max_size=3)  # fmt: skip
TEXT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
bodies = st.sampled_from([
    TEXT, b"", TEXT[:20], TEXT[20:], TEXT + TEXT, TEXT.replace(b"a", b""), b"data: [DONE]\n\n", b": ping\n\n",
    b'data: {"model":"m","choices":[{"delta":{"content":"a"}}]}\n\n', b'data: {"choices":[{"delta":{"role":"x"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3}}\n\n', b"plain",
])  # fmt: skip


class Cycle:
    def __init__(self, has_flow: bool) -> None:
        self.log: list[Any] = []
        if has_flow:
            self.flow = Flow()

    async def send(self, message: Any) -> None:
        self.log.append(message)


def answered(messages: list[Any], has_flow: bool, sender: Any) -> list[Any]:
    """Everything that an answer and its record know after these messages."""
    cycle = Cycle(has_flow)
    record = Record("GET", 2, start_ns=1)
    with FakeClock() as now, pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer, "_sender", sender)
        of = answer.Answer(record, cycle.send)
        for message, paused in messages:
            now.advance_ms(1)
            if has_flow:
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
    st.lists(st.tuples(bodies, st.sampled_from([True, True, True, False]), st.booleans()), max_size=9), st.booleans(),
)  # fmt: skip
def test_the_start_of_a_stream_is_read_alike(status: int, headers: Any, chunks: list[Any], has_flow: bool) -> None:
    messages: list[Any] = [({"type": "http.response.start", "status": status, "headers": headers}, False)]
    messages += [
        ({"type": "http.response.body", "body": body, "more_body": more}, paused) for body, more, paused in chunks
    ]
    assert answered(messages, has_flow, native.sender) == answered(messages, has_flow, plain_sender)


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
    ]), max_size=5,
)  # fmt: skip


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


def test_what_the_server_or_the_message_raises_reaches_the_caller() -> None:
    def raises(message: Any) -> Any:
        raise KeyError("server")

    send, switch, _ = native.sender(raises, raises, raises, Flow, native.TokenMarks(), None, None)
    switch(True)
    with pytest.raises(RuntimeError, match="torn"):
        send(Torn())
    with pytest.raises(KeyError, match="server"):
        send({"more_body": True})
    with pytest.raises(TypeError):
        send()
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


def test_nothing_is_held() -> None:
    def once() -> None:
        record = Record("POST", 2)
        token = CURRENT.set(record)
        for _ in range(3):
            with Stage("queue", {"a": 1}), Stage("inner"):
                pass
        with pytest.raises(ValueError, match="x"), Stage("failing"):
            raise ValueError("x")
        CURRENT.reset(token)
        mark = record.token_marker()
        for _ in range(40):
            mark()
        send, switch, take = native.sender(len, len, len, Flow, record.times, None, record)
        switch(True)
        for _ in range(12):
            send({"more_body": True})
        take()
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

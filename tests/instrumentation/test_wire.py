"""Answers watched where uvicorn writes them: told as those watched at `send`, and its writes left alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from asgi_calls import chat, http_scope, sse
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tailtrace.instrumentation import wire, wrap_gateway
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.otlp import SpanData
from tailtrace.instrumentation.record import Record
from tailtrace.instrumentation.testing import FakeClock, captured
from tailtrace.instrumentation.wire import PlainWire, body_of, can_watch, head_of, make_wire

log = logging.getLogger("uvicorn.test")


class Transport:
    """Keeps what is written; each write takes `write_ms`, and the first `pause_at` writes leave it full."""

    def __init__(self, now: FakeClock | None = None, write_ms: float = 0, pause_at: int = 0) -> None:
        self.written: list[Any] = []
        self.flow: Any = None
        self.now, self.write_ms, self.pause_at = now, write_ms, pause_at

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if self.now is not None:
            self.now.advance_ms(self.write_ms)
        if len(self.written) == self.pause_at:
            self.flow.pause_writing()

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Subclassed(RequestResponseCycle):
    """A server of the same kind that is known anew."""


def cycle_of(transport: Any, method: str = "GET", kind: Any = RequestResponseCycle) -> Any:
    flow = transport.flow = FlowControl(transport)
    return kind(
        scope=http_scope("/", method=method), transport=transport, flow=flow, logger=log, access_logger=log,
        access_log=False, default_headers=[(b"server", b"uvicorn")], message_event=asyncio.Event(),
        expect_100_continue=False, keep_alive=True, on_response=lambda: None,
    )  # fmt: skip


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


EVENTS = (b"content-type", b"text/event-stream")
TOKEN = sse(chat("x"))[0]


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def answering(messages: list[dict[str, Any]], each: Callable[[int], None] = lambda index: None) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for index, message in enumerate(messages):
            each(index)
            await send(message)

    return wrap_gateway(app)


def told(spans: list[SpanData]) -> list[Any]:
    return [(s.name, s.start_unix_ns, s.end_unix_ns, s.status_code, dict(s.attributes)) for s in spans]


def answered(messages: list[dict[str, Any]], watched: bool, method: str = "GET") -> list[Any]:
    """The spans of one answer, watched at the transport or at `send`; and what reached the transport."""
    with FakeClock() as now, captured() as spans:
        transport = Transport()
        cycle = cycle_of(transport, method)

        async def elsewhere(message: Any) -> None:
            await cycle.send(message)

        app = answering(messages, lambda index: now.advance_ms(3))
        asyncio.run(app(http_scope("/", method=method), receive, cycle.send if watched else elsewhere))
        assert cycle.transport is transport
        return [told(spans()), transport.written]


bodies = st.sampled_from([
    TOKEN, b"", TOKEN[:20], TOKEN[20:], TOKEN + TOKEN, sse(chat(""))[0], b"data: [DONE]\n\n", b": ping\n\n", b"plain",
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n0\r\n\r\n',
    b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3}}\n\n', b'{"usage":{"prompt_tokens":3}}',
])  # fmt: skip
types = st.sampled_from(
    [
        EVENTS,
        (b"Content-Type", b"Text/Event-Stream; charset=utf-8"),
        (b"content-type", b"application/json"),
        (b"x", b""),
    ]
)


@given(types, st.lists(bodies, max_size=9), bodies, st.sampled_from([200, 404, 503]), st.booleans())
def test_a_watched_answer_is_told_as_one_watched_at_send(
    kind: Any, given: list[bytes], last: bytes, status: int, sized: bool
) -> None:
    head = [kind, (b"content-length", b"%d" % sum(map(len, [*given, last])))] if sized else [kind]
    messages = [start(*head, status=status), *map(body, given), body(last, more=False)]
    assert answered(messages, True) == answered(messages, False)


def test_the_server_s_own_send_is_what_the_app_gets_and_its_transport_what_is_watched() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cycle = send.__self__
        seen.extend([send.__func__, type(cycle.transport), cycle.transport.is_closing()])
        seen.append(cycle.transport.get_extra_info("peername", 5))
        await send(start(EVENTS))
        await send(body(TOKEN, more=False))

    transport = Transport()
    with captured():
        asyncio.run(wrap_gateway(app)(http_scope("/"), receive, cycle_of(transport).send))
    assert seen == [RequestResponseCycle.send, PlainWire if native is None else native.Wire, False, 5]


def test_a_token_has_the_time_when_the_app_gave_it_also_where_the_server_waited() -> None:
    def each(index: int) -> None:
        now.advance_ms(10)

    async def served() -> None:
        transport = Transport(pause_at=3)
        cycle = cycle_of(transport)

        def read() -> None:
            now.advance_ms(40)
            cycle.flow.resume_writing()

        pause = cycle.flow.pause_writing

        def paused() -> None:
            pause()
            asyncio.get_running_loop().call_soon(read)

        cycle.flow.pause_writing = paused
        await answering([start(EVENTS), *[body(TOKEN)] * 4, body(b"", more=False)], each)(
            http_scope("/"), receive, cycle.send
        )

    with FakeClock() as now, captured() as spans:
        asyncio.run(served())
        request, blocked = sorted(spans(), key=lambda span: span.name == "stream_out")
    attributes = request.attributes
    assert attributes["tailtrace.ttft_ns"] == 20_000_000
    # At 20, 30 and 40 ms, where it waits until 80, then at 90.
    assert attributes["tailtrace.last_token_ns"] == 90_000_000
    assert attributes["tailtrace.gaps"] == "814:2,896:1"
    assert (blocked.name, blocked.end_unix_ns - blocked.start_unix_ns) == ("stream_out", 40_000_000)


def test_the_request_ends_once_its_last_piece_is_written() -> None:
    with FakeClock() as now, captured() as spans:
        cycle = cycle_of(Transport(now, write_ms=2))

        async def app(scope: Any, receive: Any, send: Any) -> None:
            for message in (start(EVENTS), body(TOKEN), body(TOKEN, more=False)):
                await send(message)
            now.advance_ms(500)

        asyncio.run(wrap_gateway(app)(http_scope("/"), receive, cycle.send))
        (span,) = spans()
    assert span.end_unix_ns - span.start_unix_ns == 6_000_000
    assert span.attributes["tailtrace.outcome"] == "ok"


@pytest.mark.parametrize("complete", [False, True])
def test_a_client_that_leaves_counts_while_the_answer_is_not_complete(complete: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(EVENTS))
        await send(body(TOKEN))
        if complete:
            await send(body(b"", more=False))
        cycle.disconnected = True
        assert (await cycle.receive())["type"] == "http.disconnect"
        if not complete:
            await send(body(TOKEN))
            await send(body(b"", more=False))

    with captured() as spans:
        cycle = cycle_of(Transport())
        asyncio.run(wrap_gateway(app)(http_scope("/"), cycle.receive, cycle.send))
        (span,) = spans()
    assert span.attributes["tailtrace.outcome"] == ("ok" if complete else "cancelled")


@pytest.mark.parametrize(
    ("messages", "outcome", "error"),
    [
        ([start(EVENTS), body(TOKEN)], "error", "IncompleteResponse"),
        ([start(EVENTS)], "error", "IncompleteResponse"),
        ([], "ok", None),
        ([start(EVENTS), body(TOKEN), {"type": "nonsense"}], "error", "RuntimeError"),
    ],
)
def test_an_answer_that_is_not_complete(messages: Any, outcome: str, error: str | None) -> None:
    with captured() as spans:
        transport = Transport()
        cycle = cycle_of(transport)
        try:
            asyncio.run(answering(messages)(http_scope("/"), receive, cycle.send))
        except RuntimeError:
            assert error == "RuntimeError"
        (span,) = spans()
    assert (span.attributes["tailtrace.outcome"], span.attributes.get("error.type")) == (outcome, error)
    assert cycle.transport is transport


def test_after_a_head_request_the_answer_is_whole() -> None:
    messages = [start((b"content-length", b"5")), body(b"hello", more=False)]
    spans, written = answered(messages, True, "HEAD")
    assert spans[0][4]["tailtrace.outcome"] == "ok"
    assert len(written) == 1


def test_a_hundred_continue_is_no_head() -> None:
    assert head_of(b"HTTP/1.1 100 Continue\r\n\r\n") is None
    for bad in (b"", b"HTTP/1.1", b"HTTP/1.1 2000 x", b"5\r\nhello\r\n", b"HTTP/1.1 abc"):
        with pytest.raises(ValueError, match="head"):
            head_of(bad)


@pytest.mark.parametrize("bad", [
    b"x", b"5\r\nhello", b"5\r\nhello\r\nmore", b"+5\r\nhello\r\n", b"-1\r\n\r\n", b"\r\n\r\n", b"5\r\nhell",
    b"5\r\nhello\r\n0\r\n", b"F\r\n" + b"a" * 15 + b"\r\n", b"0" * 16 + b"\r\n\r\n",
])  # fmt: skip
def test_what_is_no_whole_chunk_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="chunk"):
        body_of(bad)


class Torn(RequestResponseCycle):
    """A server that writes a body in two pieces."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "http.response.body":
            self.transport.write(b"")


class Other:
    async def send(self, message: Any) -> None:
        """No server that is known."""


def test_only_a_server_that_writes_as_known_is_watched() -> None:
    for kind, expected in ((Subclassed, True), (Torn, False)):
        cycle = cycle_of(Transport(), kind=kind)
        assert can_watch(cycle, cycle.send) is expected
        assert can_watch(cycle, cycle.send) is expected
    cycle = cycle_of(Transport())
    assert not can_watch(cycle, cycle.receive)
    assert not can_watch(Other(), Other().send)
    assert not can_watch(None, None)


class Watcher:
    """Writes down what it is told; takes a body of three bytes or more for the first token, and fails at one of two."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.wire: Any = None

    def saw_head(self, message: Any) -> None:
        self.log.append(message)

    def saw_body(self, message: Any, at_ns: int) -> None:
        self.log.append((message, at_ns))
        if len(message["body"]) == 2:
            raise RuntimeError("a fault of ours")
        if len(message["body"]) >= 3:
            self.wire.switch(True)


def chunk(data: bytes, last: bool = False) -> bytes:
    return (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"0\r\n\r\n" if last else b"")


heads = st.sampled_from([
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nTransfer-Encoding: Chunked\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nx:\r\ny: : \r\n\r\n", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1", b"",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"XTTP/1.1 200 OK\r\n\r\n",
])  # fmt: skip
pieces = st.one_of(
    st.builds(chunk, st.binary(max_size=20), st.booleans()), st.binary(max_size=8), st.just(bytearray(b"abc")),
    st.sampled_from([
        b"0\r\n\r\n", b"7\r\n1234567\r\n", b"5\r\n0\r\n\r\n\r\n", b"00\r\n\r\n", b"A\r\n", b"f" * 15 + b"\r\n\r\n",
    ]),
)  # fmt: skip


@pytest.mark.skipif(native is None, reason="the C extension is not built, or turned off")
@given(heads, st.lists(st.tuples(pieces, st.sampled_from([None, None, None, True, False]), st.booleans()), max_size=12))
def test_both_twins_watch_alike(head: bytes, steps: list[Any]) -> None:
    def run(kind: Any) -> list[Any]:
        with FakeClock() as now:
            transport, record, watcher = Transport(now, write_ms=1), Record("GET", 2, start_ns=1), Watcher()
            holder = cycle_of(transport)
            holder.transport = watcher.wire = of = kind(transport, watcher, record)
            seen: list[Any] = []
            for data, switch, waited in [(head, None, False), *steps]:
                now.advance_ms(1)
                if waited:
                    record.waits = [*(record.waits or []), (now.ns - 300_000, now.ns)]
                of.write(data)
                seen.append((of.last_ns, list(record.times)))
                if switch is not None:
                    of.switch(switch)
            try:
                seen.append(of.release(holder))
            except ValueError as error:
                seen.append(str(error))
            of.write(b"after")
            of.switch(True)
            of.write(b"after")
            return [watcher.log, seen, list(record.times), transport.written, holder.transport is transport]

    assert run(native.wire) == run(PlainWire)


@pytest.mark.skipif(native is None, reason="the C extension is not built, or turned off")
def test_a_wire_refuses_what_it_cannot_stand_for() -> None:
    for bad in ((), (Transport(), Watcher()), (Transport(), Watcher(), None)):
        with pytest.raises(TypeError):
            native.wire(*bad)
    with pytest.raises(AttributeError):
        native.wire(object(), Watcher(), Record("GET"))
    with pytest.raises(AttributeError):
        native.wire(Transport(), Watcher(), Record("GET")).release(object())
    for bad in ((), (None, None), (native.wire(Transport(), Watcher(), Record("GET")),)):
        with pytest.raises(TypeError):
            native.finish_stream(*bad)
    assert not native.finish_stream(native.wire(Transport(), Watcher(), Record("GET")), object())


def test_what_the_transport_raises_reaches_the_server() -> None:
    class Broken(Transport):
        def write(self, data: bytes) -> None:
            raise OSError("gone")

    of = make_wire(Broken(), Watcher(), Record("GET"))
    for data in (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"3\r\nabc\r\n", b"3\r\nabc\r\n"):
        with pytest.raises(OSError, match="gone"):
            of.write(data)


def test_a_fault_of_ours_is_no_fault_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "is_in_chunks", lambda message: 1 / 0)
    transport = Transport()
    of = make_wire(transport, Watcher(), Record("GET"))
    for data in (b"no head", b"HTTP/1.1 200 OK\r\n\r\n", b"3\r\nabc\r\n"):
        of.write(data)
    assert len(transport.written) == 3

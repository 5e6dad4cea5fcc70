"""The answer of one HTTP request as it is sent: status, sizes, token times, and time blocked by a slow reader."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, NamedTuple

from tailtrace.instrumentation import clock, sse, tcp_info
from tailtrace.instrumentation.drain import is_timed, note_wait
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.outcome import of_exception, of_status
from tailtrace.instrumentation.record import Outcome, Record
from tailtrace.instrumentation.tokens import TokenMarks
from tailtrace.instrumentation.wire import can_watch, make_wire

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_TAIL: Final = 5
_TAIL_BYTES: Final = 4096
_SAMPLE_MASK: Final = 31

# Content types whose chunks are tokens when the length is not known beforehand.
_TOKEN_TYPES: Final = (
    b"text/event-stream", b"application/x-ndjson", b"application/ndjson", b"application/jsonl",
    b"application/json-lines", b"text/plain",
)  # fmt: skip
_FRAMED: Final = (b"text/event-stream", b"application/x-ndjson", b"application/ndjson", b"application/json")


class Sender(NamedTuple):
    """The `send` that the app gets, and what steers it."""

    send: Send
    # Turns the fast path on or off.
    switch: Callable[[bool], None]
    # From then on `send` only passes on; gives the last messages of the fast path, and lets go all that was held.
    close: Callable[[], list[Message]]


def plain_sender(
    slow: Send, careful: Send, send: Send, flow: Any, times: TokenMarks, answer: Any, record: Record
) -> Sender:
    """One plain function, because every chunk passes it: on the fast path a clock read and two list writes, then the
    server's own awaitable. Where the server's waits are timed (`flow` is True) only the last send is `careful`; else
    also one that will wait, by the server's own flag, or where it shows none (`flow` is None) one in 32. Off the fast
    path it is `slow`; the one in C does what that does for the usual start of a stream itself, on `answer` and
    `record`.
    """
    fast = False
    now_ns, append = clock.now_ns, times.append
    kept: deque[Message] = deque(maxlen=_TAIL)
    keep = kept.append

    def switch(on: bool) -> None:
        nonlocal fast
        fast = on and slow is not send

    def close() -> list[Message]:
        nonlocal fast, slow, careful
        fast = False
        slow = careful = send
        taken = list(kept)
        kept.clear()
        return taken

    def by_drain(message: Message) -> Awaitable[None]:
        if fast:
            append(now_ns())
            keep(message)
            try:
                if message["more_body"]:
                    return send(message)
            except KeyError:
                pass
            return careful(message)
        return slow(message)

    def by_flag(message: Message) -> Awaitable[None]:
        if fast:
            append(now_ns())
            keep(message)
            try:
                if message["more_body"] and not flow.write_paused:
                    return send(message)
            except KeyError:
                pass
            return careful(message)
        return slow(message)

    def by_sample(message: Message) -> Awaitable[None]:
        if fast:
            append(now_ns())
            keep(message)
            try:
                if message["more_body"] and len(times) & _SAMPLE_MASK:
                    return send(message)
            except KeyError:
                pass
            return careful(message)
        return slow(message)

    return Sender(by_drain if flow is True else by_sample if flow is None else by_flag, switch, close)


_sender: Callable[[Send, Send, Send, Any, TokenMarks, Any, Record], Sender] = (
    plain_sender if native is None else native.sender
)


def plain_client_of(cycle: Any) -> tuple[int, int] | None:
    """`tcp_info` of the connection that the server's cycle writes to; None where it shows no transport."""
    transport = cycle.transport
    return None if transport is None else tcp_info.of_socket(transport.get_extra_info("socket"))


def plain_finish_well(record: Record, status: int, connection: tuple[int, int], end_ns: int) -> None:
    """The end of a request that was answered as it should be."""
    record.attributes["http.response.status_code"] = status
    _tell_connection(record, connection)
    record.finish("ok", end_ns)


def _tell_connection(record: Record, connection: tuple[int, int]) -> None:
    rtt_ns, retransmits = connection
    if rtt_ns:
        record.attributes["tailtrace.client_rtt_ns"] = rtt_ns
    if retransmits:
        record.attributes["tailtrace.client_retransmits"] = retransmits


_client_of: Callable[[Any], tuple[int, int] | None] = plain_client_of if native is None else native.client_of
_finish_well: Callable[[Record, int, tuple[int, int], int], None] = (
    plain_finish_well if native is None else native.finish_well
)


class Answer:
    """Stands in for the server's `send`: headers first, then bodies until the first token, then the fast path."""

    # Most answers leave most of these as they are.
    _status = 0
    _size = 0
    _bodies = 0
    _start_ns = 0
    _done_ns = 0
    _left = False
    _fast = False
    _framed = False
    _framed_json = False
    _frames: sse.Frames | None = None
    _in_tokens = True
    # Where the server's transport is watched and not its `send`.
    _wire: Any = None

    def __init__(self, record: Record, send: Send, ends: tuple[Any, Any] = (None, None)) -> None:
        """`ends`: the connection's two addresses, server's and client's, as the scope names them."""
        self._record = record
        self._ends = ends
        self._server_send = send
        # uvicorn: the cycle knows whether the next send will wait and whether the client is gone.
        cycle: Any = getattr(send, "__self__", None)
        self._cycle = cycle
        if can_watch(cycle, send):
            self.send = send
            self._flow: Any = True
            self._sender = self._wire = cycle.transport = make_wire(cycle.transport, self, record)
            return
        self._flow = getattr(cycle, "flow", None)
        if not hasattr(self._flow, "write_paused"):
            self._flow = None
        elif is_timed(self._flow):
            self._flow = True
        self._sender = _sender(self._slow, self._careful, send, self._flow, record.times, self, record)
        self.send = self._sender.send

    @property
    def sees_client(self) -> bool:
        """Whether the server shows when the client has left."""
        return hasattr(self._cycle, "disconnected")

    def client_left(self) -> None:
        """The client went away; it counts only while the answer is not complete."""
        if not self._done_ns and not (self._wire is not None and self._cycle.response_complete):
            self._left = True

    def saw_head(self, message: Message) -> None:
        """The server writes the head of the answer."""
        self._begin(message)

    def saw_body(self, message: Message, at_ns: int) -> None:
        """The server writes a body that was handed to it at `at_ns`."""
        if self._in_tokens:
            self._look_for_token(message, at_ns)
        else:
            self._count(message)

    def _slow(self, message: Message) -> Awaitable[None]:
        kind = message["type"]
        if kind == "http.response.body":
            return self._before_tokens(message) if self._in_tokens else self._plain(message)
        if kind == "http.response.start":
            self._begin(message)
        return self._server_send(message)

    def _begin(self, message: Message) -> None:
        self._start_ns = clock.now_ns()
        self._status = message.get("status", 0)
        content_type = b""
        length = None
        for name, value in message.get("headers", ()):
            lower = name.lower()
            if lower == b"content-type":
                content_type = value.lower()
            elif lower == b"content-length":
                length = value
        record = self._record
        if length is None and content_type.startswith(_TOKEN_TYPES) and self._status < 400:
            if not record.first_ns:
                record.streaming = True
                self._framed = content_type.startswith(_FRAMED)
                self._frames = None
                if not self._in_tokens:
                    self._in_tokens = True
                record.tail = None
                return
            record.tail = deque(maxlen=_TAIL)
        else:
            record.streaming = False
            record.tail = deque(maxlen=2)
            self._framed_json = content_type.startswith(b"application/json")
        self._in_tokens = False

    async def _plain(self, message: Message) -> None:
        """Bodies that are not tokens: timed one by one, since they are few or large."""
        self._count(message)
        before = clock.now_ns()
        if not message.get("more_body", False):
            self._complete(before)
        await self._server_send(message)
        self._note(before, clock.now_ns())

    def _count(self, message: Message) -> None:
        """A body that is no token; its beginning and end are kept for the usage in it."""
        body = message.get("body", b"")
        self._bodies += 1
        if body:
            self._size += len(body)
            if self._record.streaming is not False or self._framed_json:
                tail = self._record.tail
                if not tail:
                    tail.append(bytes(body[:512]))
                tail.append(bytes(body[-_TAIL_BYTES:]))

    def _before_tokens(self, message: Message) -> Awaitable[None]:
        """Bodies of a stream until its first token of an answer."""
        now = clock.now_ns()
        self._look_for_token(message, now)
        if not message.get("more_body", False):
            self._complete(now)
        elif self._flow is True or (self._flow is not None and not self._flow.write_paused):
            return self._server_send(message)
        return self._timed(message, now)

    def _look_for_token(self, message: Message, now: int) -> None:
        body = message.get("body", b"")
        record = self._record
        if body and not self._fast:
            self._size += len(body)
            if self._framed:
                self._frames = self._frames or sse.Frames()
                channel = self._frames.feed(bytes(body))
            else:
                channel = sse.ANSWER
            if channel:
                if record.first_ns:
                    record.times.append(now)
                else:
                    record.begin_tokens(now)
                if channel == sse.ANSWER:
                    record.answer_ns = now
                    self._go_fast()
            if record.tail is None:
                record.tail = deque(maxlen=_TAIL)
            record.tail.append(message)

    async def _timed(self, message: Message, before: int) -> None:
        await self._server_send(message)
        self._note(before, clock.now_ns())

    def _go_fast(self) -> None:
        """From now on each body is a token."""
        record = self._record
        if self._frames is not None:
            if self._frames.model:
                record.attributes.setdefault("gen_ai.response.model", self._frames.model)
            record.attributes.update(self._frames.usage)
        self._set_fast(True)

    def _set_fast(self, on: bool) -> None:
        self._fast = on
        self._sender.switch(on)

    async def _careful(self, message: Message) -> None:
        """A send that may wait, is a sample, or is the last; the fast path has marked it already."""
        before = clock.now_ns()
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._complete(before)
            self._set_fast(False)
        await self._server_send(message)
        self._note(before, clock.now_ns())

    def _complete(self, now: int) -> None:
        """The last body is being sent."""
        if getattr(self._cycle, "disconnected", False):
            self._left = True
        if not self._left:
            self._done_ns = now

    def _note(self, before: int, after: int) -> None:
        """A send is over: the answer may be, and it may have waited."""
        if self._done_ns:
            self._done_ns = max(self._done_ns, after)
        if self._flow is not True:
            note_wait(self._record, before, after)

    def finish(self, failed: type[BaseException] | None) -> None:
        """The app has returned, or raised `failed`."""
        record = self._record
        # What the app still holds of us no longer holds us: no circle for the cycle collector to find.
        wire = self._wire
        if wire is None:
            kept = self._sender.close()
        elif failed is None and not self._left and native is not None and native.finish_stream(wire, self._cycle):
            return
        else:
            kept = wire.release(self._cycle)
            if self._cycle.response_complete:
                self._done_ns = wire.last_ns
        if kept:
            if record.tail is None:
                record.tail = kept
            else:
                record.tail.extend(kept)
        if self._bodies <= 2 and not record.streaming and self._start_ns and self._done_ns:
            # A whole answer handed over at once: all of it is sending.
            record.mark("stream_out", self._start_ns, self._done_ns)
        else:
            for before, after in record.waits or ():
                record.mark("stream_out", before, after)
        if self._size and not record.first_ns:
            record.attributes["http.response.body.size"] = self._size
        connection = self._connection()
        if failed is None and self._done_ns and not self._left and 0 < self._status < 400:
            _finish_well(record, self._status, connection, self._done_ns)
            return
        if self._status:
            record.attributes["http.response.status_code"] = self._status
        _tell_connection(record, connection)
        outcome, error = self._outcome(failed)
        record.finish(outcome, self._done_ns if outcome != "error" else 0, error)

    def _outcome(self, failed: type[BaseException] | None) -> tuple[Outcome, str]:
        """How the request ended, and the error's name."""
        left = self._left or (not self._done_ns and getattr(self._cycle, "disconnected", False))
        if failed is None and not left and self._status < 400:
            if self._start_ns and not self._done_ns:
                # The answer was begun and never completed, and nobody left: the client got a torn body.
                return "error", "IncompleteResponse"
            return "ok", ""
        outcome = of_exception(failed)
        if left and outcome != "error":
            return "cancelled", ""
        if failed is not None:
            return outcome, failed.__name__ if outcome in {"error", "timeout"} else ""
        outcome = of_status(self._status)
        return outcome, str(self._status) if outcome in {"error", "timeout"} else ""

    def _connection(self) -> tuple[int, int]:
        """The kernel's round trip to the client in ns, and retransmits: by the server's socket, else by addresses."""
        try:
            found = _client_of(self._cycle) if hasattr(self._cycle, "transport") else None
            return tcp_info.of_addresses(*self._ends) if found is None else found
        except (OSError, ValueError, struct.error, AttributeError, TypeError, IndexError):
            return tcp_info.NOTHING

"""The answer of one request as uvicorn writes it, watched where it goes to the connection.

A `send` of ours costs each chunk a call, and the interpreter its short way into the server's. So where the server is
known, the app gets the server's own `send`, and what is watched in its place is the transport of this one answer: the
server still writes each byte itself. What it hands over is one piece for the head and one for each message; whether
that is so is tried once, on the server's own class. Where it is not, and elsewhere, `send` is watched (answer.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any, Final, Protocol

from tailtrace.instrumentation import clock
from tailtrace.instrumentation.drain import is_timed
from tailtrace.instrumentation.native import native
from tailtrace.instrumentation.record import Record

log = logging.getLogger("tailtrace")

Message = MutableMapping[str, Any]

TAIL: Final = 5
_HEX: Final = frozenset(b"0123456789abcdef")
_MAX_DIGITS: Final = 15
_LAST: Final = b"0\r\n\r\n"


class Watcher(Protocol):
    """Who is told what was written: answer.Answer."""

    def saw_head(self, message: Message) -> None:
        """The head of the answer."""

    def saw_body(self, message: Message, at_ns: int) -> None:
        """A body that the app handed over at `at_ns`; `more_body` is true where its being the last is not seen here."""


def head_of(data: bytes) -> Message | None:
    """The message that this head was made of; None for `100 Continue`, which is none. Raises ValueError."""
    first, *lines = data.split(b"\r\n")
    parts = first.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or len(parts[1]) != 3 or not parts[1].isdigit():
        raise ValueError("expected the head of an HTTP answer")
    status = int(parts[1])
    if status < 200:
        return None
    pairs = [line.partition(b": ") for line in lines if line]
    headers = [(name, value) for name, _, value in pairs]
    return {"type": "http.response.start", "status": status, "headers": headers}


def is_in_chunks(message: Message) -> bool:
    """Whether the bodies after this head are framed as chunks (RFC 9112, section 7.1)."""
    return any(
        name.lower() == b"transfer-encoding" and value.lower() == b"chunked" for name, value in message["headers"]
    )


def body_of(data: bytes) -> tuple[bytes, bool]:
    """The body in one chunk, and whether more follow. Raises ValueError for all but a whole chunk or nothing."""
    if type(data) is not bytes:
        raise ValueError("expected a chunk of bytes")
    if data in {b"", _LAST}:
        return b"", not data
    digits, _, rest = data.partition(b"\r\n")
    if not 0 < len(digits) <= _MAX_DIGITS or not _HEX.issuperset(digits):
        raise ValueError("expected a chunk")
    size = int(digits, 16)
    end = rest[size:]
    if end not in {b"\r\n", b"\r\n" + _LAST}:
        raise ValueError("expected one whole chunk")
    return rest[:size], end == b"\r\n"


def _whole_body(data: bytes) -> bytes | None:
    try:
        return body_of(data)[0]
    except ValueError:
        return None


class PlainWire:
    """Stands in for the transport of one answer, from its head to the end of its request."""

    __slots__ = (
        "_append", "_begun", "_fast", "_in_chunks", "_kept", "_record", "_transport", "_wait", "_watcher", "_write",
        "last_ns",
    )  # fmt: skip

    def __init__(self, transport: Any, watcher: Watcher, record: Record) -> None:
        self._transport = transport
        self._write = transport.write
        self._watcher: Watcher | None = watcher
        self._record = record
        self._append = record.times.append
        self._kept: deque[bytes] = deque(maxlen=TAIL)
        self._begun = self._in_chunks = self._fast = False
        self._wait: Any = None
        # When the last piece was handed over, or once it was written where it may be the answer's last.
        self.last_ns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def switch(self, on: bool) -> None:
        """From now on each body is a token (or no longer)."""
        self._fast = on and self._watcher is not None

    def write(self, data: bytes) -> None:
        """What the server calls; passed on, whatever becomes of us. A body is looked at once it is written: the client
        waits for it, nobody for what is made of it."""
        at = 0
        look = False
        if self._watcher is not None:
            try:
                at = self._handed_over()
                if self._fast and type(data) is bytes:
                    if self._is_inside(data, at):
                        self._write(data)
                        return
                elif self._begun:
                    look = True
                else:
                    self._see_head(data)
            except Exception:
                self._give_up()
        self._write(data)
        self.last_ns = clock.now_ns()
        if look and self._watcher is not None:
            try:
                self._see_body(data, at)
            except Exception:
                self._give_up()

    def _is_inside(self, data: bytes, at: int) -> bool:
        """Mark a token; True where it is surely not the answer's last."""
        self._append(at)
        self._kept.append(data)
        self.last_ns = at
        if not data.endswith(_LAST) or body_of(data)[1]:
            return True
        self._fast = False
        return False

    def _see_head(self, data: bytes) -> None:
        head = head_of(data)
        if head is not None:
            self._begun = True
            self._in_chunks = is_in_chunks(head)
            self._watcher.saw_head(head)  # type: ignore[union-attr]

    def _see_body(self, data: bytes, at: int) -> None:
        body, more = body_of(data) if self._in_chunks else (data, True)
        message = {"type": "http.response.body", "body": body, "more_body": more}
        self._watcher.saw_body(message, at)  # type: ignore[union-attr]

    def _handed_over(self) -> int:
        """When the app handed over what is written now: before the server waited for a slow client, where it did."""
        now = clock.now_ns()
        waits = self._record.waits
        if not waits or waits[-1] is self._wait:
            return now
        self._wait = waits[-1]
        return max(waits[-1][0], self.last_ns)

    def _give_up(self) -> None:
        log.debug("tailtrace: an answer is no longer watched", exc_info=True)
        self._watcher = None
        self._fast = False

    def release(self, cycle: Any) -> list[bytes]:
        """Give the server its transport back, let go all that was held, and give the last bodies of the fast path."""
        if cycle.transport is self:
            cycle.transport = self._transport
        self._watcher = None
        self._fast = False
        kept, self._kept = self._kept, deque()
        return [body for body in map(_whole_body, kept) if body is not None]


make_wire: Callable[[Any, Any, Record], Any] = PlainWire if native is None else native.wire


# The class of a server's cycle, and its `send` where answers can be watched at their transport.
_known: dict[type, Any] = {}


def can_watch(cycle: Any, send: Any) -> bool:
    """Whether `send` is that of a server whose answer can be watched at its transport."""
    kind = type(cycle)
    if kind not in _known:
        _known[kind] = _send_to_watch(cycle, kind)
    known = _known[kind]
    return known is not None and send.__func__ is known


def _send_to_watch(cycle: Any, kind: Any) -> Any:
    try:
        # Where waits cannot be timed apart, `send` is.
        return kind.send if is_timed(cycle.flow) and _writes_as_known(kind) else None
    except Exception:
        return None


class _Paper:
    """A transport that keeps what is written to it, and flow control that never waits."""

    write_paused = False

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def _writes_as_known(kind: Any) -> bool:
    """Let a cycle of this class answer on paper, changing its transport after the head."""
    import asyncio  # not with the import of the whole: who has a cycle has it loaded

    for headers, framing, bodies in (
        ([], b"transfer-encoding: chunked", [b"3\r\none\r\n", b"", b"10\r\n0123456789abcdef\r\n0\r\n\r\n"]),
        ([], b"transfer-encoding: chunked", [b"3\r\none\r\n", b"", b"0\r\n\r\n"]),
        ([(b"content-length", b"3")], b"content-length: 3", [b"", b"", b"one"]),
    ):
        head, rest = _Paper(), _Paper()
        cycle = kind(
            scope={"type": "http", "method": "GET", "path": "/", "headers": []}, transport=head, flow=_Paper(),
            logger=log, access_logger=log, access_log=False, default_headers=[], message_event=asyncio.Event(),
            expect_100_continue=False, keep_alive=True, on_response=lambda: None,
        )  # fmt: skip
        given = [body_of(body)[0] if not headers else body for body in bodies]
        kind_of_text = (b"content-type", b"text/event-stream")
        _at_once(cycle.send({"type": "http.response.start", "status": 200, "headers": [kind_of_text, *headers]}))
        cycle.transport = rest
        for index, body in enumerate(given):
            if cycle.response_complete:
                return False
            _at_once(cycle.send({"type": "http.response.body", "body": body, "more_body": index < len(given) - 1}))
        expected = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + framing + b"\r\n\r\n"
        if head.written != [expected] or rest.written != bodies or not cycle.response_complete or cycle.disconnected:
            return False
    return True


def _at_once(awaitable: Any) -> None:
    """Run what never waits."""
    try:
        awaitable.send(None)
    except StopIteration:
        return
    awaitable.close()
    raise RuntimeError("expected a server that writes at once")

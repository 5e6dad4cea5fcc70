"""Waits for a slow client are timed where uvicorn waits, told to their request, and never twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgi_calls import chat, http_scope, sse
from uvicorn.protocols.http.flow_control import FlowControl

from tailtrace.instrumentation import wrap_gateway
from tailtrace.instrumentation.drain import is_timed, note_wait
from tailtrace.instrumentation.record import Record
from tailtrace.instrumentation.testing import FakeClock, captured

pytestmark = pytest.mark.anyio


class Cycle:
    """As uvicorn's: waits in `drain` before it writes, and the transport pauses it while it writes."""

    def __init__(self, flow: Any, now: FakeClock, pause_at: int, wait_ms: float) -> None:
        self.flow, self.disconnected = flow, False
        self._now, self._pause_at, self._wait_ms = now, pause_at, wait_ms
        self.count = 0

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            asyncio.get_running_loop().call_soon(self._read)
            await self.flow.drain()
        self.count += 1
        if self.count == self._pause_at:
            self.flow.pause_writing()

    def _read(self) -> None:
        self._now.advance_ms(self._wait_ms)
        self.flow.resume_writing()


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(4):
        await send({"type": "http.response.body", "body": sse(chat("x"))[0], "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def waits(kind: Any, pause_at: int, wait_ms: float) -> list[float]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    with FakeClock() as now, captured() as spans:
        cycle = Cycle(kind(None), now, pause_at, wait_ms)
        await wrap_gateway(app)(http_scope(), receive, cycle.send)
        assert cycle.count == 6
        assert [span.attributes["tailtrace.outcome"] for span in spans() if "tailtrace.outcome" in span.attributes] == [
            "ok"
        ]
        return [(s.end_unix_ns - s.start_unix_ns) / 1e6 for s in spans() if s.name == "stream_out"]


# The head, the first token, tokens in the middle, and before the last message.
@pytest.mark.parametrize("pause_at", [1, 2, 4, 5])
async def test_a_wait_is_stream_out_once_wherever_it_is(pause_at: int) -> None:
    assert await waits(FlowControl, pause_at, 40) == [40]


async def test_a_wait_too_short_to_tell_is_left_out() -> None:
    assert await waits(FlowControl, 4, 0.1) == []


async def test_a_subclass_of_a_timed_class_is_not_timed_twice() -> None:
    class Own(FlowControl):
        pass

    assert is_timed(FlowControl(None))  # type: ignore[arg-type]
    assert await waits(Own, 4, 40) == [40]


def test_what_has_no_such_wait_is_asked_by_its_flag() -> None:
    class Flagged:
        write_paused = False

    class Plain(Flagged):
        def drain(self) -> None:
            """Not awaited."""

    assert not is_timed(Flagged())
    assert not is_timed(Plain())


async def test_outside_a_request_it_only_waits() -> None:
    flow = FlowControl(None)  # type: ignore[arg-type]
    assert is_timed(flow)
    await flow.drain()


def test_neighbours_are_joined_when_there_are_too_many() -> None:
    record = Record("GET")
    for at in range(100):
        note_wait(record, at * 1_000_000, at * 1_000_000 + 300_000 + at)
    assert record.waits is not None
    assert len(record.waits) == 64
    assert (record.waits[0][0], record.waits[-1][1]) == (0, 99_300_099)

"""stream(): exactly one span on every way out, and nothing left attached."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import trace

from tailtrace.instrumentation import request, stream
from tailtrace.instrumentation.otlp import SpanData
from tailtrace.instrumentation.record import CURRENT, Record
from tailtrace.instrumentation.testing import FakeClock, captured

pytestmark = pytest.mark.anyio


def five() -> Iterator[str]:
    yield from "abcde"


async def async_five() -> AsyncIterator[str]:
    for letter in "abcde":
        yield letter


def broken() -> Iterator[str]:
    yield "a"
    yield "b"
    raise RuntimeError


async def async_broken() -> AsyncIterator[str]:
    yield "a"
    yield "b"
    raise RuntimeError


def exhaust() -> None:
    assert list(stream(five())) == list("abcde")


def leave_by_break() -> None:
    with stream(five()) as watched:
        for _ in watched:
            break


def close() -> None:
    watched = stream(five())
    next(watched)
    watched.close()


def fail() -> None:
    with pytest.raises(RuntimeError):
        list(stream(broken()))


def forget() -> None:
    watched = stream(five())
    next(watched)
    del watched
    gc.collect()


def never_begin() -> None:
    stream(five()).close()


PLAIN = [
    (exhaust, "ok", 5), (leave_by_break, "cancelled", 1), (close, "cancelled", 1), (fail, "error", 2),
    (forget, "cancelled", 1), (never_begin, "cancelled", 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("leave", "outcome", "chunks"), PLAIN, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_every_way_out_of_a_plain_iterator_is_one_span(leave: Any, outcome: str, chunks: int) -> None:
    with captured() as spans:
        leave()
        check(spans(), outcome, chunks)


async def async_exhaust() -> None:
    assert [item async for item in stream(async_five())] == list("abcde")


async def async_break() -> None:
    async with stream(async_five()) as watched:
        async for _ in watched:
            break


async def async_close() -> None:
    watched = stream(async_five())
    await watched.__anext__()
    await watched.aclose()


async def async_fail() -> None:
    with pytest.raises(RuntimeError):
        [item async for item in stream(async_broken())]


async def async_forget() -> None:
    watched = stream(async_five())
    await watched.__anext__()
    del watched
    gc.collect()


async def async_cancel() -> None:
    async def slow() -> AsyncIterator[str]:
        yield "a"
        await asyncio.Event().wait()

    async def read() -> None:
        async for _ in stream(slow()):
            began.set()

    began = asyncio.Event()
    task = asyncio.create_task(read())
    await began.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


ASYNC = [
    (async_exhaust, "ok", 5), (async_break, "cancelled", 1), (async_close, "cancelled", 1), (async_fail, "error", 2),
    (async_forget, "cancelled", 1), (async_cancel, "cancelled", 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("leave", "outcome", "chunks"), ASYNC, ids=lambda value: getattr(value, "__name__", str(value))
)
async def test_every_way_out_of_an_async_iterator_is_one_span(leave: Any, outcome: str, chunks: int) -> None:
    with captured() as spans:
        await leave()
        check(spans(), outcome, chunks)


def check(spans: list[SpanData], outcome: str, chunks: int) -> None:
    assert [
        (span.name, span.attributes["tailtrace.outcome"], span.attributes["tailtrace.chunks"]) for span in spans
    ] == [("stream", outcome, chunks)]


async def test_closed_by_another_task_it_ends_once_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with captured() as spans, caplog.at_level(logging.DEBUG):
        watched = stream(async_five())
        await watched.__anext__()
        await asyncio.create_task(watched.aclose())
        check(spans(), "cancelled", 1)
    assert [entry for entry in caplog.records if entry.levelno >= logging.WARNING] == []
    assert CURRENT.get() is None
    assert not trace.get_current_span().get_span_context().is_valid


def test_nothing_of_a_finished_stream_stays_in_memory() -> None:
    with captured() as spans:
        watched = stream(five())
        list(watched)
        own = weakref.ref(watched._core._own)
        assert isinstance(own(), Record)
        del watched
        spans()
        assert own() is None


def test_outside_a_request_it_has_its_own_token_times() -> None:
    def tokens() -> Iterator[str]:
        for text in ("", "a", "b"):
            now.advance_ms(10)
            yield text

    with FakeClock() as now, captured() as spans:
        list(stream(tokens()))
        attributes = spans()[0].attributes
    assert attributes["tailtrace.ttft_ns"] == 20_000_000
    assert attributes["tailtrace.last_token_ns"] == 30_000_000
    assert attributes["tailtrace.request"] is True


def test_inside_a_request_it_is_decode_and_feeds_the_request() -> None:
    def tokens() -> Iterator[str]:
        for text in "abc":
            now.advance_ms(10)
            yield text

    with FakeClock() as now, captured() as spans:
        with request("generate"):
            now.advance_ms(5)
            list(stream(tokens()))
        found = {span.name: span for span in spans()}
    assert found["generate"].attributes["tailtrace.ttft_ns"] == 15_000_000
    assert found["generate"].attributes["tailtrace.gaps"] == "814:2"
    assert found["decode"].attributes["tailtrace.stage"] == "decode"
    assert found["decode"].end_unix_ns - found["decode"].start_unix_ns == 20_000_000
    assert len(found) == 2


def test_openai_style_chunks_without_content_are_not_first_tokens() -> None:
    class Delta:
        def __init__(self, content: str | None) -> None:
            self.content = content

    class Choice:
        def __init__(self, content: str | None) -> None:
            self.delta = Delta(content)

    class Chunk:
        def __init__(self, content: str | None) -> None:
            self.choices = [Choice(content)]

    def chunks() -> Iterator[Chunk]:
        for content in (None, "", "a"):
            now.advance_ms(10)
            yield Chunk(content)

    with FakeClock() as now, captured() as spans:
        list(stream(chunks()))
        assert spans()[0].attributes["tailtrace.ttft_ns"] == 30_000_000


def test_the_wrapped_object_stays_reachable() -> None:
    class Answer:
        status = 200

        def __iter__(self) -> Iterator[str]:
            return five()

    with captured():
        watched = stream(Answer())
        assert watched.status == 200
        assert next(watched) == "a"

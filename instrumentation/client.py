"""`wrap_client(c)`: the caller's view of a call, so that network is the client's span minus the server's.

For httpx and requests clients and what is built on them (the OpenAI client). A streamed answer ends when it is read to
its end or closed, and gives token times as the client sees them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

from tailtrace.errors import ConfigError
from tailtrace.instrumentation import runtime, sse
from tailtrace.instrumentation.context import current_scope, traceparent_of, tracestate_of
from tailtrace.instrumentation.otlp import CLIENT
from tailtrace.instrumentation.outcome import of_exception, of_status
from tailtrace.instrumentation.record import Record


def wrap_client(client: Any) -> Any:
    """Watch the calls of an httpx client, a requests session or an OpenAI client; gives the same object back.

    Raises ConfigError for an object that sends nothing we know.
    """
    inner = getattr(client, "_client", None)
    if inner is not None and hasattr(inner, "send"):
        wrap_client(inner)
        return client
    module = type(client).__mro__[-2].__module__ if len(type(client).__mro__) > 1 else ""
    send = getattr(client, "send", None)
    if send is None:
        raise ConfigError(f"wrap_client: expected an httpx, requests or OpenAI client, got {type(client).__name__}")
    if getattr(send, "__tailtrace__", False):
        return client
    if hasattr(client, "aclose"):
        client.send = _watch_async(send)
    elif module.startswith("requests") or hasattr(client, "mount"):
        client.send = _watch_plain(send, _finish_requests)
    else:
        client.send = _watch_plain(send, _finish_httpx)
    return client


def _begin(request: Any) -> Record | None:
    active = runtime.active
    if active is None:
        return None
    record = Record(_name(request), CLIENT, current_scope(), active.sample)
    request.headers["traceparent"] = traceparent_of(record)
    state = tracestate_of(record)
    if state:
        request.headers["tracestate"] = state
    return record


def _name(request: Any) -> str:
    url = request.url
    host = getattr(url, "host", None)
    if host is None:
        from urllib.parse import urlsplit

        host = urlsplit(str(url)).hostname
    return f"{request.method} {host}"


def _fail(record: Record | None, error: BaseException) -> None:
    if record is not None:
        outcome = of_exception(type(error))
        record.finish(outcome, error=type(error).__name__ if outcome != "cancelled" else "")


def _watch_plain(send: Callable[..., Any], finish: Callable[[Record, Any, bool], None]) -> Callable[..., Any]:
    @wraps(send)
    def watched(request: Any, *args: Any, **kwargs: Any) -> Any:
        record = _safely(_begin, request)
        try:
            response = send(request, *args, **kwargs)
        except BaseException as error:
            _fail(record, error)
            raise
        if record is not None:
            _safely(finish, record, response, bool(kwargs.get("stream")))
        return response

    watched.__tailtrace__ = True  # type: ignore[attr-defined]
    return watched


def _watch_async(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    async def watched(request: Any, *args: Any, **kwargs: Any) -> Any:
        record = _safely(_begin, request)
        try:
            response = await send(request, *args, **kwargs)
        except BaseException as error:
            _fail(record, error)
            raise
        if record is not None:
            _safely(_finish_httpx, record, response, bool(kwargs.get("stream")))
        return response

    watched.__tailtrace__ = True  # type: ignore[attr-defined]
    return watched


def _safely(function: Callable[..., Any], *args: Any) -> Any:
    """A fault of ours must not fail the user's call."""
    try:
        return function(*args)
    except Exception:
        return None


class _Reading:
    """Reads a streamed answer's chunks for tokens, and ends the record once."""

    def __init__(self, record: Record, response: Any) -> None:
        self.record = record
        self._status = response.status_code
        kind = str(response.headers.get("content-type", "")).encode()
        self._frames = sse.Frames() if kind.startswith((b"text/event-stream", b"application/x-ndjson")) else None
        record.streaming = self._frames is not None
        self._complete = False

    def chunk(self, body: bytes) -> None:
        record = self.record
        if self._frames is None:
            return
        if record.answer_ns:
            record.token()
            if b"_tokens" in body:
                record.attributes.update(sse.read_usage(body))
            return
        channel = self._frames.feed(body)
        if channel:
            record.token()
            if channel == sse.ANSWER:
                record.answer_ns = record.times[-1]

    def complete(self) -> None:
        self._complete = True
        self.end(None)

    def end(self, kind: type[BaseException] | None) -> None:
        outcome = of_exception(kind)
        if outcome == "ok":
            outcome = of_status(self._status) if self._complete else "cancelled"
        self.record.attributes["http.response.status_code"] = self._status
        self.record.finish(outcome, error=kind.__name__ if kind is not None and outcome == "error" else "")


def _finish_httpx(record: Record, response: Any, stream: bool) -> None:
    reading = _Reading(record, response)
    if response.is_closed or not stream:
        reading.complete()
        return
    iter_raw, aiter_raw = response.iter_raw, response.aiter_raw
    close, aclose = response.close, response.aclose

    def watched_iter(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        try:
            for chunk in iter_raw(*args, **kwargs):
                reading.chunk(chunk)
                yield chunk
        except BaseException as error:
            reading.end(type(error))
            raise
        reading.complete()

    async def watched_aiter(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        try:
            async for chunk in aiter_raw(*args, **kwargs):
                reading.chunk(chunk)
                yield chunk
        except BaseException as error:
            reading.end(type(error))
            raise
        reading.complete()

    def watched_close() -> None:
        close()
        if response.num_bytes_downloaded and response.is_stream_consumed:
            reading._complete = True
        reading.end(None)

    async def watched_aclose() -> None:
        await aclose()
        if response.num_bytes_downloaded and response.is_stream_consumed:
            reading._complete = True
        reading.end(None)

    response.iter_raw, response.aiter_raw = watched_iter, watched_aiter
    response.close, response.aclose = watched_close, watched_aclose


def _finish_requests(record: Record, response: Any, stream: bool) -> None:
    reading = _Reading(record, response)
    if not stream:
        reading.complete()
        return
    iter_content, close = response.iter_content, response.close

    def watched_iter(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        try:
            for chunk in iter_content(*args, **kwargs):
                reading.chunk(chunk if isinstance(chunk, bytes) else str(chunk).encode())
                yield chunk
        except BaseException as error:
            reading.end(type(error))
            raise
        reading.complete()

    def watched_close() -> None:
        close()
        reading.end(None)

    response.iter_content, response.close = watched_iter, watched_close

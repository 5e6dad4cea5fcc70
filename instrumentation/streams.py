"""`stream(it)`: token times of an iterator, and exactly one span however it is left.

Left by exhaustion, break, close, exception, garbage collection or a cancelled task. The span is never made current, so
it can end in another task than it began in. Inside a request it is its `decode` stage (first token to last) and feeds
the request's token times, unless the gateway reads those from the answer; outside of one it is a request of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeVar

from tailtrace.instrumentation import clock, runtime, sse
from tailtrace.instrumentation.otlp import INTERNAL
from tailtrace.instrumentation.outcome import of_exception
from tailtrace.instrumentation.record import CURRENT, Record, Scope, Stage, live

T = TypeVar("T")


def is_token(item: Any) -> bool:
    """Whether a chunk carries generated tokens: text or bytes that are not empty, an OpenAI-style object or dict."""
    if isinstance(item, (str, bytes)):
        return bool(item)
    if isinstance(item, dict):
        return sse.channel_of_document(item) != sse.NOTHING
    choices = getattr(item, "choices", None)
    if isinstance(choices, (list, tuple)):
        return any(_choice_has_token(choice) for choice in choices)
    return item is not None


def _choice_has_token(choice: Any) -> bool:
    delta = getattr(choice, "delta", None) or getattr(choice, "message", None)
    if delta is None:
        return bool(getattr(choice, "text", None))
    names = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal")
    return any(getattr(delta, name, None) for name in names)


class _Core:
    """What the plain and the async wrapper share: marks until `end`, then one span."""

    __slots__ = ("_accepts", "_name", "_own", "_scope", "_start_ns", "chunks", "ended", "first_ns", "last_ns")

    def __init__(self, name: str, scope: Scope | None, accepts: Callable[[Any], bool]) -> None:
        self._name = name
        self._scope = scope
        self._accepts = accepts
        self._start_ns = 0
        # The request whose token times this stream feeds.
        self._own: Record | None = None
        self.chunks = 0
        self.first_ns = 0
        self.last_ns = 0
        self.ended = False

    def begin(self) -> None:
        self._start_ns = clock.now_ns()
        if self._scope is None:
            self._scope = live(CURRENT.get())
        request = self._scope.record if self._scope is not None else None
        if request is None:
            active = runtime.active
            self._own = Record(self._name, INTERNAL, self._scope, active.sample if active else 1, self._start_ns)
        elif not request.first_ns and request.streaming is None:
            self._own = request

    def item(self, item: Any) -> None:
        now = clock.now_ns()
        self.chunks += 1
        if not self.first_ns:
            if not self._accepts(item):
                return
            self.first_ns = now
        self.last_ns = now
        own = self._own
        if own is not None:
            if own.tail is None:
                own.token(now)
            else:
                # The gateway began to read the answer's own tokens, which are what the client sees.
                self._own = None

    def end(self, kind: type[BaseException] | None, cut: bool = False) -> None:
        """Called on every way out; the first one counts. `cut`: left before the iterator was exhausted."""
        if self.ended:
            return
        self.ended = True
        if not self._start_ns:
            self.begin()
        now = clock.now_ns()
        outcome = "cancelled" if cut and kind is None else of_exception(kind)
        error = kind.__name__ if kind is not None and outcome in {"error", "timeout"} else ""
        own = self._own
        if own is not None and (self._scope is None or own is not self._scope.record):
            own.attributes["tailtrace.chunks"] = self.chunks
            own.finish(outcome, now, error)
            return
        attributes: dict[str, Any] = {"tailtrace.outcome": outcome, "tailtrace.chunks": self.chunks}
        if self.first_ns:
            attributes["tailtrace.stream_ttft_ns"] = self.first_ns - self._start_ns
        finished = Stage("decode" if self.first_ns else self._name, attributes)
        finished.parent = self._scope
        finished.start_ns = self.first_ns or self._start_ns
        finished.end_ns = self.last_ns if self.first_ns and outcome == "ok" else now
        finished.error = error
        finished.deliver()


class Stream(Generic[T]):
    """A plain iterator, watched. Everything else of the wrapped object is reached through it."""

    def __init__(self, inner: Any, core: _Core) -> None:
        self._inner = inner
        self._iterator: Any = None
        self._core = core

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        core = self._core
        try:
            if self._iterator is None:
                core.begin()
                self._iterator = iter(self._inner)
            item: T = next(self._iterator)
        except StopIteration:
            core.end(None)
            raise
        except BaseException as error:
            core.end(type(error))
            raise
        core.item(item)
        return item

    def close(self) -> None:
        self._core.end(None, cut=True)
        close = getattr(self._iterator if self._iterator is not None else self._inner, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Stream[T]:
        enter = getattr(self._inner, "__enter__", None)
        if enter is not None:
            enter()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        self._core.end(kind, cut=True)
        leave = getattr(self._inner, "__exit__", None)
        if leave is not None:
            return leave(kind, error, trace)
        self.close()
        return None

    def __del__(self) -> None:
        try:
            self._core.end(None, cut=True)
        except Exception:
            # While the interpreter ends, parts of this module may be gone already.
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)


class AsyncStream(Generic[T]):
    """An async iterator, watched."""

    def __init__(self, inner: Any, core: _Core) -> None:
        self._inner = inner
        self._iterator: Any = None
        self._core = core

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        core = self._core
        try:
            if self._iterator is None:
                core.begin()
                self._iterator = self._inner.__aiter__()
            item: T = await self._iterator.__anext__()
        except StopAsyncIteration:
            core.end(None)
            raise
        except BaseException as error:
            core.end(type(error))
            raise
        core.item(item)
        return item

    async def aclose(self) -> None:
        self._core.end(None, cut=True)
        inner = self._iterator if self._iterator is not None else self._inner
        close = getattr(inner, "aclose", None) or getattr(inner, "close", None)
        if close is not None:
            closing = close()
            if closing is not None:
                await closing

    close = aclose

    async def __aenter__(self) -> AsyncStream[T]:
        enter = getattr(self._inner, "__aenter__", None)
        if enter is not None:
            await enter()
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> Any:
        self._core.end(kind, cut=True)
        leave = getattr(self._inner, "__aexit__", None)
        if leave is not None:
            return await leave(kind, error, trace)
        await self.aclose()
        return None

    def __del__(self) -> None:
        try:
            self._core.end(None, cut=True)
        except Exception:
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)


def stream(iterator: Any, *, name: str = "stream", accepts: Callable[[Any], bool] = is_token) -> Any:
    """Watch an iterator of tokens or chunks, plain or async; use what is returned in its place.

    `accepts(item)` says whether an item is a first token; role-only, empty and usage chunks are not (`is_token`).
    """
    if isinstance(iterator, (Stream, AsyncStream)):
        return iterator
    core = _Core(name, live(CURRENT.get()), accepts)
    if hasattr(iterator, "__aiter__"):
        return AsyncStream(iterator, core)
    return Stream(iterator, core)

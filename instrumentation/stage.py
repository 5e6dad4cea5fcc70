"""The user's own marks: `stage("queue")`, `@staged("rerank")`, `stage_from(start_ns, "queue")`, `request("chat")`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar, overload

from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.context import Entered, current_scope, extract
from tailtrace.instrumentation.otlp import SERVER
from tailtrace.instrumentation.outcome import of_exception
from tailtrace.instrumentation.record import CURRENT, Record, Scope, Stage, live

F = TypeVar("F", bound=Callable[..., Any])


def stage(name: str, **attributes: Any) -> Stage:
    """A context manager, plain or async, that marks a stage of the current request.

    `name` is one of `tailtrace.stages`; any other becomes a `custom` stage of that name. Without a current request the
    stage is sent as a span of its own, which is right for start-up stages.
    """
    return Stage(name, attributes or None)


@overload
def staged(name: F) -> F: ...
@overload
def staged(name: str | None = None, **attributes: Any) -> Callable[[F], F]: ...
def staged(name: Any = None, **attributes: Any) -> Any:
    """Decorator: each call is a stage, named by the argument or by the function. Knows coroutines and generators."""
    if callable(name):
        return _staged(name, name.__name__, {})

    def decorate(function: Any) -> Any:
        return _staged(function, name or function.__name__, attributes)

    return decorate


def _staged(function: Any, name: str, attributes: dict[str, Any]) -> Any:
    if getattr(function, "__tailtrace__", False):
        return function
    wrapper: Any
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with Stage(name, attributes or None):
                return await function(*args, **kwargs)

    elif inspect.isasyncgenfunction(function):

        @wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with Detached(name, attributes):
                async for item in function(*args, **kwargs):
                    yield item

    elif inspect.isgeneratorfunction(function):

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with Detached(name, attributes):
                return (yield from function(*args, **kwargs))

    else:

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with Stage(name, attributes or None):
                return function(*args, **kwargs)

    wrapper.__tailtrace__ = True
    return wrapper


class Detached:
    """A stage that never becomes the current scope: for code with a `yield` inside, which may end in another task."""

    def __init__(self, name: str, attributes: dict[str, Any] | None = None) -> None:
        self._stage = Stage(name, dict(attributes) if attributes else None)

    def __enter__(self) -> Stage:
        self._stage.parent = live(CURRENT.get())
        self._stage.start_ns = clock.now_ns()
        return self._stage

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._stage.end_ns = clock.now_ns()
        outcome = of_exception(kind)
        if outcome == "cancelled":
            self._stage.set("tailtrace.outcome", outcome)
        elif kind is not None:
            self._stage.error = kind.__name__
        self._stage.deliver()


def stage_from(start_ns: int, name: str, *, end_ns: int = 0, scope: Scope | None = None, **attributes: Any) -> None:
    """A stage that began at the mark `start_ns` of `clock.now_ns` and ends now, or at `end_ns`.

    For waits that begin in one place and end in another: take `mark()` when an item is queued, call this when it is
    taken out. `scope` says whose it is where that is not the current request (`current_request()` at the first mark).
    """
    finished = Stage(name, attributes or None)
    finished.parent = scope if scope is not None else live(CURRENT.get())
    finished.start_ns = start_ns
    finished.end_ns = max(end_ns or clock.now_ns(), start_ns)
    finished.deliver()


def mark() -> int:
    """The clock's present mark, for `stage_from` and `Record.mark`."""
    return clock.now_ns()


class request:  # noqa: N801 - reads as a statement: with request("generate")
    """`with request("generate", headers=...) as r:` a request that does not come through ASGI. Plain and async alike.

    `headers` (a mapping or ASGI pairs) join it to its caller; else it is a child of what is current, else a new trace.
    """

    def __init__(
        self,
        name: str,
        *,
        headers: Mapping[str, Any] | Iterable[tuple[bytes, bytes]] | None = None,
        kind: int = SERVER,
        start_ns: int = 0,
        **attributes: Any,
    ) -> None:
        self._name = name
        self._headers = headers
        self._kind = kind
        self._start_ns = start_ns
        self._attributes = attributes
        self._record: Record
        self._entered: Entered

    def __enter__(self) -> Record:
        parent: Scope | None = extract(self._headers) if self._headers is not None else None
        if parent is None:
            parent = current_scope()
        active = runtime.active
        self._record = Record(self._name, self._kind, parent, active.sample if active else 1, self._start_ns)
        for name, value in self._attributes.items():
            self._record.set(name, value)
        self._entered = Entered(self._record)
        return self._record

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._entered.leave()
        outcome = of_exception(kind)
        self._record.finish(outcome, error=kind.__name__ if kind is not None and outcome != "cancelled" else "")

    async def __aenter__(self) -> Record:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.__exit__(kind, error, trace)

"""llama-cpp-python: tokenize, prefill and decode, from `Llama`'s public methods; the queue from its server's locks.

Written from its source (0.3.35) and tested on fakes only. prefill runs from the first step of `generate` to the first
token, decode from there to the generator's end. The server lets one call at a time into the model, by two locks taken
one after the other: waiting for them is the queue. They are a thread's locks in some versions, a task's in others.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator
from types import TracebackType
from typing import Any, Final

from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.context import current_scope
from tailtrace.instrumentation.engines.patch import fault, replace
from tailtrace.instrumentation.record import Scope
from tailtrace.instrumentation.stage import stage_from

LOCKS: Final = ("llama_outer_lock", "llama_inner_lock")
_LEAST_WAIT_NS: Final = 100_000
"""A lock that was free takes less: no stage of it."""


def hook_server(module: Any) -> None:
    """Hook `llama_cpp.server.app`, which has just been imported: its functions look the locks up at each call."""
    for name in LOCKS:
        lock = getattr(module, name, None)
        if lock is not None and not isinstance(lock, _TimedLock):
            setattr(module, name, _TimedLock(lock))


class _TimedLock:
    """The server's lock; who waits for it says so."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        start_ns = clock.now_ns()
        taken = self._lock.acquire(*args, **kwargs)
        if inspect.isawaitable(taken):
            return _awaited(taken, start_ns)
        _waited(start_ns)
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def __enter__(self) -> Any:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    async def __aenter__(self) -> Any:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._lock.release()


async def _awaited(taken: Awaitable[Any], start_ns: int) -> Any:
    result = await taken
    _waited(start_ns)
    return result


def _waited(start_ns: int) -> None:
    end_ns = clock.now_ns()
    if end_ns - start_ns >= _LEAST_WAIT_NS:
        _tell(start_ns, "queue", current_scope(), end_ns)


def hook(module: Any) -> None:
    """Hook `llama_cpp.llama`, which has just been imported."""
    replace("llama_cpp", module, "Llama.tokenize", _tokenize, gives="tokenize")
    replace("llama_cpp", module, "Llama.generate", _generate, gives="prefill, decode")


def _tokenize(original: Any) -> Any:
    def tokenize(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = clock.now_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            _tell(start_ns, "tokenize", current_scope())

    return tokenize


def _generate(original: Any) -> Any:
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = original(self, *args, **kwargs)
        return _timed(inner, current_scope()) if runtime.active is not None else inner

    return generate


def _timed(inner: Generator[int, Any, None], scope: Scope | None) -> Generator[int, Any, None]:
    """The same tokens, what is sent in passed on; the request is the one in which `generate` was called."""
    start_ns, first_ns = clock.now_ns(), 0
    sent: Any = None
    try:
        while True:
            try:
                token = inner.send(sent)
            except StopIteration:
                return
            if not first_ns:
                first_ns = clock.now_ns()
                _tell(start_ns, "prefill", scope, first_ns)
            sent = yield token
    finally:
        inner.close()
        if first_ns:
            _tell(first_ns, "decode", scope)


def _tell(start_ns: int, stage: str, scope: Scope | None, end_ns: int = 0) -> None:
    if runtime.active is None or scope is None:
        return
    try:
        stage_from(start_ns, stage, scope=scope, end_ns=end_ns)
    except Exception:
        fault(f"Llama, {stage}")

"""llama-cpp-python's hooks on a fake of `Llama`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from tailtrace.instrumentation import request
from tailtrace.instrumentation.engines import llama_cpp
from tailtrace.instrumentation.testing import FakeClock, captured


def hooked(now: FakeClock) -> Any:
    class Llama:
        def __init__(self) -> None:
            self.received: list[Any] = []

        def tokenize(self, text: bytes) -> list[int]:
            now.advance_ms(2)
            return [1, 2]

        def generate(self, tokens: list[int]) -> Generator[int, Any, None]:
            for token in range(4):
                now.advance_ms(10)
                self.received.append((yield token))

    module = SimpleNamespace(__name__="llama_cpp.llama", Llama=Llama)
    llama_cpp.hook(module)
    return Llama()


def stages(spans: Any) -> list[tuple[str, int]]:
    return [
        (span.attributes["tailtrace.stage"], (span.end_unix_ns - span.start_unix_ns) // 1_000_000)
        for span in spans()
        if "tailtrace.stage" in span.attributes
    ]


def test_stages_of_a_completion() -> None:
    with FakeClock() as now, captured() as spans:
        llama = hooked(now)
        with request("POST /v1/completions"):
            assert list(llama.generate(llama.tokenize(b"hi"))) == [0, 1, 2, 3]
        assert stages(spans) == [("tokenize", 2), ("prefill", 10), ("decode", 30)]


class ThreadLock:
    """A lock that takes some time to get, as of `threading`."""

    def __init__(self, now: FakeClock, wait_ms: int) -> None:
        self._now, self._wait_ms, self.held = now, wait_ms, False

    def acquire(self) -> bool:
        self._now.advance_ms(self._wait_ms)
        self.held = True
        return True

    def release(self) -> None:
        self.held = False

    def locked(self) -> bool:
        return self.held


class TaskLock(ThreadLock):
    """The same, as of `anyio`."""

    async def acquire(self) -> bool:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().acquire()


def test_waiting_for_the_servers_locks_is_the_queue() -> None:
    with FakeClock() as now, captured() as spans:
        module = SimpleNamespace(llama_outer_lock=ThreadLock(now, 0), llama_inner_lock=ThreadLock(now, 30))
        llama_cpp.hook_server(module)
        llama_cpp.hook_server(module)
        with request("POST /v1/completions"):
            assert module.llama_outer_lock.acquire()
            assert module.llama_outer_lock.locked()
            with module.llama_inner_lock:
                module.llama_outer_lock.release()
            assert not module.llama_inner_lock.locked()
        assert stages(spans) == [("queue", 30)]


def test_locks_of_tasks_are_awaited() -> None:
    with FakeClock() as now, captured() as spans:
        module = SimpleNamespace(llama_outer_lock=TaskLock(now, 5), llama_inner_lock=TaskLock(now, 20))
        llama_cpp.hook_server(module)

        async def serve() -> None:
            with request("POST /v1/completions"):
                assert await module.llama_outer_lock.acquire()
                async with module.llama_inner_lock:
                    module.llama_outer_lock.release()

        asyncio.run(serve())
        assert stages(spans) == [("queue", 5), ("queue", 20)]


def test_what_is_sent_in_arrives_and_an_early_end_is_the_end_of_decode() -> None:
    with FakeClock() as now, captured() as spans:
        llama = hooked(now)
        with request("POST /v1/completions"):
            running = llama.generate([1])
            next(running)
            assert running.send([9]) == 1
            running.close()
        assert llama.received == [[9]]
        assert stages(spans) == [("prefill", 10), ("decode", 10)]


def test_an_error_passes() -> None:
    with FakeClock(), captured():

        def generate(self: Any) -> Generator[int, Any, None]:
            yield 1
            raise MemoryError("kv")

        module = SimpleNamespace(__name__="llama_cpp.llama", Llama=type("Llama", (), {"generate": generate}))
        llama_cpp.hook(module)
        with request("r"), pytest.raises(MemoryError, match="kv"):
            list(module.Llama().generate())

"""What joins a request's telemetry with counters: its loop watched, its GPUs named, a sampler beside it."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from tailtrace.instrumentation import loop_probe, runtime, wrap_gateway
from tailtrace.instrumentation.run import command
from tailtrace.instrumentation.runtime import instrument, shutdown
from tailtrace.instrumentation.sampler import visible


@pytest.fixture
def here() -> Iterator[None]:
    yield
    shutdown(0.1)


async def call(app: Any) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        pass

    await app({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x"})


def probes() -> int:
    return sum(thread.name == "tailtrace-loop-probe" for thread in threading.enumerate())


@pytest.mark.parametrize(("wanted", "found"), [(True, 1), (False, 0)])
def test_a_wrapped_gateway_watches_its_loop_once(here: None, wanted: bool, found: int) -> None:
    instrument("shop", endpoint="http://127.0.0.1:9", watch_loop=wanted)
    first, second = wrap_gateway(hello), wrap_gateway(hello)
    before = probes()

    async def main() -> int:
        for app in (first, second, first):
            await call(app)
        seen = probes() - before
        assert isinstance(loop_probe.watch_loop(), loop_probe._Nothing) == wanted
        return seen

    assert asyncio.run(main()) == found


def test_shutdown_ends_every_thread_and_the_probe_holds_nothing_of_the_first_request(here: None) -> None:
    mine: ContextVar[object] = ContextVar("mine")
    instrument("shop", endpoint="http://127.0.0.1:9", shutdown_s=0.5)
    before = {thread.name for thread in threading.enumerate()}

    class Kept:
        pass

    async def request() -> weakref.ref[Kept]:
        kept = Kept()
        mine.set(kept)
        await call(wrap_gateway(hello))
        return weakref.ref(kept)

    async def main() -> None:
        held = await asyncio.create_task(request())
        assert probes()
        await asyncio.sleep(0.05)
        gc.collect()
        assert held() is None
        await asyncio.to_thread(runtime.shutdown)
        for _ in range(500):
            if not probes():
                break
            await asyncio.sleep(0.01)
        left = {thread.name for thread in threading.enumerate()} - before
        assert not {name for name in left if name.startswith("tailtrace")}

    asyncio.run(main())


def named(monkeypatch: pytest.MonkeyPatch, found: tuple[list[str], str], *, cuda: bool) -> str | None:
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: cuda))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(visible, "gpu_uuids", lambda: found)
    instrument("engine", endpoint="http://127.0.0.1:9")
    active = runtime.active
    assert active is not None
    active._find_gpus()
    for thread in threading.enumerate():
        if thread.name == "tailtrace-gpus":
            thread.join(20)
    return active.resource.get("tailtrace.gpu_uuids")


def test_a_process_that_uses_cuda_names_its_gpus(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(monkeypatch, (["GPU-a", "GPU-b"], ""), cuda=True) == "GPU-a,GPU-b"


def test_a_process_without_cuda_names_none(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(monkeypatch, (["GPU-a"], ""), cuda=False) is None


def test_what_is_uncertain_is_not_said(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(monkeypatch, (["GPU-a"], "device_order"), cuda=True) is None


def test_run_starts_the_sampler_that_ends_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    became: list[list[str]] = []
    monkeypatch.setattr(command.subprocess, "Popen", lambda words, env, stdin: started.append((words, env)))
    monkeypatch.setattr(command.os, "execve", lambda program, words, env: became.append(words))
    command.run(["--sample", "--endpoint", "http://127.0.0.1:9", "--", "true"])
    assert became == [["true"]]
    [(words, env)] = started
    assert words[1:] == ["-m", "tailtrace", "sample", f"--parent={os.getpid()}"]
    assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:9"
    command.run(["--", "true"])
    assert len(started) == 1

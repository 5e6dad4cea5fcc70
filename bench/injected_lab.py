"""The same delays in the lab's own server, for `bench/injected.py`: a process of its own, patched from outside."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

NOBODY = -1


@contextmanager
def lab_serving(endpoint: str, delays: Path) -> Iterator[dict[str, int]]:
    """Ports of the lab's `engine` and `gateway` servers."""
    context = multiprocessing.get_context("spawn")
    processes, ports = [], {}
    for kind in ("engine", "gateway"):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(kind, endpoint, str(delays), send))
        process.start()
        processes.append(process)
        if not receive.poll(60):
            raise TimeoutError(f"the lab's {kind} does not answer")
        ports[kind] = receive.recv()
    try:
        yield ports
    finally:
        for process in processes:
            process.terminate()
            process.join(10)


def _serve(kind: str, endpoint: str, delays: str, ready: Connection) -> None:
    from tailtrace.lab.live.server import Assignment, serve

    os.environ["TAILTRACE_BENCH_DELAYS"] = delays
    if kind == "engine":
        _patch(delays)
        serve(Assignment(_scenario(), endpoint, 1, "llm"), ready)
    else:
        serve(Assignment(_scenario(), endpoint, 1, backends={"llm": []}), ready)


def _scenario() -> Any:
    from tailtrace.lab.scenario import Fleet, Scenario, Service, Traffic

    return Scenario("injected", fleet=Fleet(services=(Service("llm"),), noise=0.0), traffic=(Traffic("llm", 1.0),))


def _patch(folder: str) -> None:
    from tailtrace.lab.live import engine_app
    from tailtrace.lab.service.engine import Engine
    from tailtrace.lab.service.runner import Runner

    def delay_s(name: str) -> float:
        try:
            return float((Path(folder) / name).read_text() or 0) / 1e3
        except (OSError, ValueError):
            return 0.0

    def sleeping(name: str, original: Any, when: Callable[..., bool] = lambda *args: True) -> Any:
        def delayed(*args: Any, **kwargs: Any) -> Any:
            if when(*args):
                time.sleep(delay_s(name))
            return original(*args, **kwargs)

        return delayed

    def step_ns(self: Runner, at_ns: int, prefill_tokens: int, decodes: int, context_tokens: int) -> int:
        extra = delay_s("lab_execute") * 1e9 if prefill_tokens else 0
        return original_step(self, at_ns, prefill_tokens, decodes, context_tokens) + int(extra)

    original_step = Runner.step_ns
    Runner.step_ns = step_ns  # type: ignore[method-assign]
    engine_app.tokenize = sleeping("lab_tokenizer", engine_app.tokenize)
    # Both run in the server's loop: it is blocked. The first before the request is accepted, the second in scheduling.
    Engine.add = sleeping("lab_loop", Engine.add)  # type: ignore[method-assign]
    Engine._start = sleeping(  # type: ignore[method-assign]
        "lab_schedule", Engine._start, lambda engine: bool(engine.scheduler.waiting) and engine._current is None
    )


def lab_body(number: int, tokens: int, auth_ms: float, refused: int) -> dict[str, object]:
    """A call of the lab: what a request of its traffic looks like, with everything around it drawn as nothing."""
    from tailtrace.lab.live.wire import write_call
    from tailtrace.lab.request import Request

    drawn = Request(
        number=number, service="llm", arrival_ns=0, input_tokens=64, output_tokens=tokens, prefix_tokens=0,
        prefix_group=0, streaming=True, tenant=0, patience_ns=NOBODY, refused=refused, spread=1.0, net_in_ns=0,
        auth_ns=int(auth_ms * 1e6), rate_limit_ns=0, external_ns=0, route_ns=0, dispatch_ns=0, network_ns=0,
        client_rtt_ns=0, token_interval_ns=0,
    )  # fmt: skip
    body: dict[str, object] = json.loads(write_call(drawn))
    return body


def _try() -> None:
    """`python bench/injected_lab.py`: one call, to see that the lab's server answers."""
    from collected import collecting, judged
    from vllm_server import call

    with collecting() as collected, lab_serving(collected.endpoint, Path("/nonexistent")) as ports:
        asyncio.run(call(ports["engine"], "/v1/chat/completions", lab_body(1, 8, 0, 0), trace_id="0" * 31 + "1"))
        asyncio.run(
            call(
                ports["gateway"],
                "/v1/chat/completions",
                lab_body(2, 8, 20, 401),
                trace_id="0" * 31 + "2",
            )
        )
        time.sleep(2)
        for request in judged(collected.bodies):
            print(request.span.name, request.row["Outcome"], request.explained, request.stages_ms)


if __name__ == "__main__":
    _try()

"""The API server's half of the vLLM hooks: milestones that follow each other, samples, refusals, aborts."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_vllm import modules, request

from tailtrace.instrumentation import record as records
from tailtrace.instrumentation.context import Entered, extract
from tailtrace.instrumentation.engines.vllm import frontend, hook
from tailtrace.instrumentation.record import Record
from tailtrace.instrumentation.testing import FakeClock, captured

pytestmark = pytest.mark.anyio


@pytest.fixture
def now() -> Iterator[FakeClock]:
    with FakeClock() as fake:
        yield fake


@pytest.fixture
def server(now: FakeClock, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(records, "engine_of_new", None)
    frontend._pending.clear()
    vllm = modules(now)
    routing = SimpleNamespace(__name__="fastapi.routing", run_endpoint_function=run_endpoint_function)
    monkeypatch.setattr(frontend, "_serving", lambda: True)
    hook(routing)
    hook(vllm.renderer)
    hook(vllm.outputs)
    return SimpleNamespace(
        endpoint=routing.run_endpoint_function,
        renderer=vllm.renderer.BaseRenderer(),
        outputs=vllm.outputs.OutputProcessor(),
    )


async def run_endpoint_function(*, call: Any) -> Any:
    return await call()


def ended(name: str) -> SimpleNamespace:
    return SimpleNamespace(request_id=name, finish_reason="stop")


def times(record: Record) -> list[tuple[str, float, float]]:
    stages = sorted(record.stages, key=lambda stage: stage.start_ns)
    return [
        (stage.name, (stage.start_ns - record.start_ns) / 1e6, (stage.end_ns - record.start_ns) / 1e6)
        for stage in stages
    ]


async def test_every_moment_of_a_request_is_a_stage(server: SimpleNamespace, now: FakeClock) -> None:
    with captured():
        record = Record("POST")
        entered = Entered(record)
        now.advance_ms(1)
        record.mark("net_in", record.start_ns, now.ns)
        now.advance_ms(2)

        async def handler() -> None:
            now.advance_ms(3)
            await server.renderer.render_chat_async()
            now.advance_ms(1)
            server.outputs.add_request(request("chatcmpl-1-abc"))

        await server.endpoint(call=handler)
        now.advance_ms(50)
        produced_s = now.ns / 1e9
        now.advance_ms(2)
        server.outputs.process_outputs([ended("chatcmpl-1-abc")], produced_s)
        now.advance_ms(3)
        record.mark("stream_out", now.ns - 1_000_000, now.ns)
        entered.leave()
        record.engine.close(record, now.ns)
        assert times(record) == [
            ("net_in", 0, 1),
            ("parse", 1, 3),
            ("admission", 3, 6),
            ("template", 6, 8),
            ("tokenize", 8, 12),
            ("engine_submit", 12, 13),
            ("engine_return", 63, 65),
            ("detokenize", 65, 66),
            ("postprocess", 66, 68),
            ("stream_out", 68, 69),
        ]


async def test_the_engine_is_told_whose_request_it_is_and_since_when(server: SimpleNamespace, now: FakeClock) -> None:
    with captured():
        record = Record("POST")
        entered = Entered(record)
        one = request("a")
        one.trace_headers = {"tracestate": "x=1"}
        now.advance_ms(4)
        server.outputs.add_request(one)
        entered.leave()
        parent = extract(one.trace_headers)
        assert parent is not None
        assert (parent.trace_id, parent.span_id, parent.trace_state) == (record.trace_id, record.span_id, "x=1")
        assert int(one.trace_headers["tailtrace-sent"]) == 1_700_000_000_000_000_000 + 4_000_000


async def test_samples_of_one_request_count_their_prompt_once(server: SimpleNamespace, now: FakeClock) -> None:
    with captured() as spans:
        record = Record("POST")
        entered = Entered(record)
        parent = object()
        for name in ("0_a", "1_a"):
            server.outputs.add_request(request(name), None, parent)
        server.outputs.process_outputs([ended("1_a")], now.ns / 1e9)
        now.advance_ms(5)
        server.outputs.process_outputs([ended("0_a")], now.ns / 1e9)
        entered.leave()
        record.finish()
        attributes = spans()[0].attributes
    assert attributes["gen_ai.usage.input_tokens"] == 5
    assert attributes["gen_ai.usage.output_tokens"] == 6
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 2
    assert attributes["tailtrace.tokens_source"] == "engine"
    assert attributes["tailtrace.n"] == 2
    assert frontend._pending == {}


async def test_an_aborted_request_is_forgotten_and_keeps_its_tokens(server: SimpleNamespace, now: FakeClock) -> None:
    with captured() as spans:
        record = Record("POST")
        entered = Entered(record)
        server.outputs.add_request(request("a"))
        entered.leave()
        now.advance_ms(20)
        record.finish("cancelled")
        server.outputs.process_outputs([ended("a")], now.ns / 1e9)
        names = [span.name for span in spans()]
        attributes = spans()[0].attributes
    assert names == ["POST"]
    assert attributes["gen_ai.usage.output_tokens"] == 3
    assert frontend._pending == {}


async def test_a_request_refused_before_its_handler_was_read_and_no_more(
    server: SimpleNamespace, now: FakeClock
) -> None:
    with captured() as spans:
        record = Record("POST")
        record.attributes["http.response.status_code"] = 422
        now.advance_ms(3)
        record.finish("error")
        (stage,) = [span for span in spans() if span.attributes.get("tailtrace.stage")]
    assert (stage.name, stage.end_unix_ns - stage.start_unix_ns) == ("parse", 3_000_000)


async def test_an_engine_on_another_host_has_no_time_of_return(server: SimpleNamespace, now: FakeClock) -> None:
    with captured():
        record = Record("POST")
        entered = Entered(record)
        server.outputs.add_request(request("a"))
        server.outputs.process_outputs([ended("a")], now.ns / 1e9 + 5)
        entered.leave()
    assert [stage.name for stage in record.stages] == ["detokenize"]


async def test_outside_of_a_request_everything_passes(server: SimpleNamespace) -> None:
    assert await server.renderer.render_cmpl_async() == [1]
    server.outputs.add_request(request("a"))
    assert frontend._pending == {}


def test_a_milestone_takes_no_time_that_is_a_stage_already() -> None:
    record = Record("POST", start_ns=1_000)
    record.mark("net_in", 1_000, 1_100)
    record.mark("auth", 1_150, 1_450)  # over two milestones
    record.mark("custom", 1_200, 1_250)
    record.mark("guardrail", 1_600, 1_700)
    frontend.fill(record, 1_000, [("parse", 1_200), ("admission", 1_400), ("template", 1_500), ("tokenize", 1_900)])
    made = [(stage.name, stage.start_ns, stage.end_ns) for stage in record.stages[4:]]
    assert made == [
        ("parse", 1_100, 1_150),
        ("template", 1_450, 1_500),
        ("tokenize", 1_500, 1_600),
        ("tokenize", 1_700, 1_900),
    ]

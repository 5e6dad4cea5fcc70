"""SGLang's hooks on a fake of its scheduler: the engine itself cannot run here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tailtrace.instrumentation import request
from tailtrace.instrumentation.engines import sglang
from tailtrace.instrumentation.testing import FakeClock, captured


def fakes(now: FakeClock) -> tuple[Any, Any]:
    class TokenizerManager:
        def generate_request(self, obj: Any, request: Any = None) -> Any:
            return obj.external_trace_header

    class Scheduler:
        def __init__(self) -> None:
            self.waiting_queue: list[Any] = []
            self.server_args = SimpleNamespace(served_model_name="llama", tp_size=2, pp_size=1, quantization=None)

        def _add_request_to_queue(self, req: Any, is_retracted: bool = False) -> None:
            self.waiting_queue.append(req)

        def run_batch(self, batch: Any) -> str:
            self.waiting_queue = [req for req in self.waiting_queue if req not in batch.reqs]
            return "ran"

        def process_batch_result(self, batch: Any, result: Any) -> None:
            now.advance_ms(10)
            for req in batch.reqs:
                req.output_ids.append(1)

    tokenizer = SimpleNamespace(__name__="sglang.srt.managers.tokenizer_manager", TokenizerManager=TokenizerManager)
    scheduler = SimpleNamespace(__name__="sglang.srt.managers.scheduler", Scheduler=Scheduler)
    return tokenizer, scheduler


class Req:
    def __init__(self, rid: str, header: Any) -> None:
        self.rid, self.external_trace_header = rid, header
        self.output_ids: list[int] = []
        self.done = False

    def finished(self) -> bool:
        return self.done


def batch(reqs: list[Req], *, extend: bool) -> Any:
    return SimpleNamespace(
        reqs=reqs, extend_lens=[7] * len(reqs) if extend else None,
        forward_mode=SimpleNamespace(is_extend=lambda: extend),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang, "_engine", sglang._Engine())


def test_stages_follow_each_other_and_steps_are_paired_by_batch() -> None:
    with FakeClock() as now, captured() as spans:
        tokenizer, scheduler = fakes(now)
        sglang.hook(tokenizer)
        sglang.hook(scheduler)
        with request("POST /generate"):
            header = tokenizer.TokenizerManager().generate_request(SimpleNamespace(external_trace_header=None))
        assert header["traceparent"].count("-") == 3
        engine, one, other = scheduler.Scheduler(), Req("a", header), Req("b", None)
        engine._add_request_to_queue(one)
        engine._add_request_to_queue(other)
        now.advance_ms(5)
        first = batch([one, other], extend=True)
        assert engine.run_batch(first) == "ran"
        engine.process_batch_result(first, None)
        second = batch([one], extend=False)
        engine.run_batch(second)
        now.advance_ms(3)
        engine._add_request_to_queue(one, is_retracted=True)
        engine.process_batch_result(second, None)
        now.advance_ms(20)
        third, one.done = batch([one], extend=True), True
        engine.run_batch(third)
        engine.process_batch_result(third, None)
        made = spans()
        stages = [
            (span.attributes["tailtrace.stage"], (span.end_unix_ns - span.start_unix_ns) // 1_000_000)
            for span in made
            if "tailtrace.stage" in span.attributes
        ]
        assert stages == [("queue", 5), ("prefill", 10), ("decode", 3), ("preempted", 30), ("decode", 10)]
        trace = header["traceparent"].split("-")[1]
        assert {span.trace_id.hex() for span in made if "tailtrace.stage" in span.attributes} == {trace}
        steps = [span for span in made if span.name == "step"]
        assert [step.attributes.get("tailtrace.prefill", "") for step in steps] == ["a:7,b:7", "", "a:7"]
        assert [step.attributes["tailtrace.decode_tokens"] for step in steps] == [0, 1, 0]
        assert steps[1].attributes["tailtrace.preempted"] == "a"
        assert not sglang._engine.requests.keys() - {"b"}


def test_a_shape_that_is_not_known_leaves_the_engine_alone() -> None:
    with FakeClock() as now, captured():
        _, scheduler = fakes(now)
        sglang.hook(scheduler)
        engine = scheduler.Scheduler()
        engine._add_request_to_queue(SimpleNamespace())
        assert engine.run_batch(SimpleNamespace(reqs=[SimpleNamespace()])) == "ran"


def test_nothing_happens_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(sglang, "when_imported", lambda name, hook: waited.append(name))
    for name in ("SGLANG_PLUGINS", "TAILTRACE_RUN", "TAILTRACE_SGLANG"):
        monkeypatch.delenv(name, raising=False)
    sglang.activate()
    assert waited == []
    monkeypatch.setenv("SGLANG_PLUGINS", "other,tailtrace")
    sglang.activate()
    assert waited == ["sglang.srt.managers.scheduler", "sglang.srt.managers.tokenizer_manager"]

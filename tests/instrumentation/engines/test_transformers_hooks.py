"""transformers' public surface: outputs of continuous batching carry their own times; generate takes a streamer."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tailtrace.instrumentation import request
from tailtrace.instrumentation.engines import transformers
from tailtrace.instrumentation.testing import captured


def output(name: str, stamps: list[float] | None, begun: float, ended: float, created: float) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=name, is_finished=lambda: True, created_time=created, lifespan=(begun, ended), timestamps=stamps
    )


def manager() -> Any:
    class ContinuousBatchingManager:
        asked: dict[str, Any] = {}
        result: Any = None
        handler: Callable[[Any], Any]

        def add_request(self, input_ids: Any, request_id: str | None = None, max_new_tokens: int | None = None,
                        streaming: bool = False, record_timestamps: bool = False) -> str:  # fmt: skip
            self.asked = {"record_timestamps": record_timestamps}
            return request_id or "req_0"

        def get_result(self, request_id: str | None = None, timeout: float | None = None) -> Any:
            return self.result

        def register_result_handler(self, request_id: str, callback: Callable[[Any], Any]) -> None:
            self.handler = callback

    transformers.hook_continuous_batching(SimpleNamespace(ContinuousBatchingManager=ContinuousBatchingManager))
    return ContinuousBatchingManager()


def test_the_stages_are_the_outputs_own_times() -> None:
    cb = manager()
    with captured() as spans:
        with request("generate"):
            cb.add_request([1, 2], request_id="a")
            base = time.perf_counter() - 10
            cb.result = output("a", [base + 3, base + 4, base + 5], begun=base + 1, ended=base + 5, created=base)
            assert cb.get_result("a") is cb.result
        found = {span.name: round((span.end_unix_ns - span.start_unix_ns) / 1e9, 1) for span in spans()}
    assert cb.asked == {"record_timestamps": True}
    assert found.pop("engine_return") >= 5
    del found["generate"]
    assert found == {"queue": 1.0, "prefill": 2.0, "decode": 2.0}


def test_a_handler_gets_its_output_and_the_request_its_stages() -> None:
    cb = manager()
    got: list[Any] = []
    with captured() as spans:
        with request("generate"):
            cb.add_request([1, 2], request_id="b")
        cb.register_result_handler("b", got.append)
        base = time.perf_counter() - 10
        cb.handler(output("b", None, begun=base + 1, ended=base + 2, created=base))
        names = {span.name for span in spans()}
    assert [one.request_id for one in got] == ["b"]
    assert names == {"generate", "queue", "forward", "engine_return"}


def test_outside_of_a_request_nothing_is_asked_of_it() -> None:
    cb = manager()
    with captured() as spans:
        cb.add_request([1, 2], request_id="c")
        assert cb.get_result() is None
        assert spans() == []
    assert cb.asked == {"record_timestamps": False}

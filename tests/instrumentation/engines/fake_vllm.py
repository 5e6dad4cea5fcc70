"""The parts of vLLM that the hooks touch, as small as they can be and with a clock that only moves when told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tailtrace.instrumentation.testing import FakeClock


class Request(SimpleNamespace):
    """An `EngineCoreRequest` on one side, the scheduler's `Request` on the other."""


def request(request_id: str, prompt_tokens: int = 5, **more: Any) -> Request:
    return Request(
        request_id=request_id, trace_headers=None, pooling_params=None, num_prompt_tokens=prompt_tokens,
        num_computed_tokens=0, num_output_tokens=0, **more,
    )  # fmt: skip


def modules(now: FakeClock) -> SimpleNamespace:
    """Fresh classes, so that each test hooks its own."""

    class BaseRenderer:
        async def render_cmpl_async(self) -> list[int]:
            now.advance_ms(1)
            return await self.tokenize_prompts_async()

        async def render_chat_async(self) -> list[int]:
            now.advance_ms(2)
            return await self.tokenize_prompts_async()

        async def tokenize_prompts_async(self) -> list[int]:
            now.advance_ms(4)
            return [1]

    class OutputProcessor:
        def __init__(self) -> None:
            self.request_states: dict[str, Any] = {}

        def add_request(self, request: Any, prompt: Any = None, parent_req: Any = None) -> None:
            detokenizer = SimpleNamespace(num_output_tokens=lambda: 3)
            self.request_states[request.request_id] = SimpleNamespace(
                prompt_len=5, detokenizer=detokenizer, parent_req=parent_req, num_cached_tokens=2
            )

        def process_outputs(self, engine_core_outputs: Any, engine_core_timestamp: float | None = None) -> None:
            now.advance_ms(1)
            for output in engine_core_outputs:
                if output.finish_reason is not None:
                    self.request_states.pop(output.request_id, None)

    class EngineCore:
        vllm_config = SimpleNamespace()

        def preprocess_add_request(self, request: Any) -> tuple[Any, int]:
            now.advance_ms(1)
            return request, 0

    class Scheduler:
        def __init__(self) -> None:
            self.requests: dict[str, Any] = {}
            self.running: list[Any] = []
            self.waiting: list[Any] = []
            self.kv_cache_manager = SimpleNamespace(usage=0.25)
            self.next: Any = None
            self.connector: Any = None
            self.kv_holding_waiting: list[Any] = []

        def schedule(self, throttle_prefills: bool = False) -> Any:
            now.advance_ms(1)
            return self.next

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
            for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
                one = self.requests[request_id]
                one.num_computed_tokens += tokens
                one.num_output_tokens += 1
            for request_id in model_runner_output:
                self._free_request(self.requests.pop(request_id))
            return {0: SimpleNamespace(timestamp=now.ns / 1e9)}

        def _update_from_kv_xfer_finished(self, kv_connector_output: Any) -> None:
            """They can be scheduled from now on."""

        def _free_request(self, request: Any, delay_free_blocks: bool = False) -> None:
            """Blocks are given back."""

        def _preempt_request(self, request: Any, timestamp: float) -> None:
            """Back into the waiting queue."""

    return SimpleNamespace(
        renderer=SimpleNamespace(__name__="vllm.renderers.base", BaseRenderer=BaseRenderer),
        outputs=SimpleNamespace(__name__="vllm.v1.engine.output_processor", OutputProcessor=OutputProcessor),
        core=SimpleNamespace(__name__="vllm.v1.engine.core", EngineCore=EngineCore),
        scheduler=SimpleNamespace(__name__="vllm.v1.core.sched.scheduler", Scheduler=Scheduler),
    )


def scheduled(
    new: tuple[str, ...] = (), resumed: tuple[str, ...] = (), tokens: dict[str, int] | None = None
) -> SimpleNamespace:
    """A `SchedulerOutput`."""
    tokens = tokens or {}
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
        scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set(resumed)),
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
    )

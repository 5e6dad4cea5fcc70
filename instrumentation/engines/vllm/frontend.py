"""The API server's half: parse, admission, template, tokenize, engine_submit, engine_return, detokenize, postprocess.

A request's milestones follow each other: what lies between two of them and is no stage of its own yet (authentication,
a body being received) becomes the stage that the second one ends.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tailtrace.instrumentation import clock
from tailtrace.instrumentation import record as records
from tailtrace.instrumentation.context import current_request, traceparent_of
from tailtrace.instrumentation.engines.patch import fault, replace
from tailtrace.instrumentation.engines.vllm.spans import SENT_KEY
from tailtrace.instrumentation.record import CURRENT, Record

# Longest believable way of an output; more means that the engine is on another host, whose clock says nothing here.
_RETURN_LIMIT_NS: Final = 60_000_000_000

# Requests in the engine, by its own (internal) id.
_pending: dict[str, _Sent] = {}


class _Sent:
    """One engine request: the client's request it belongs to, and vLLM's own state of it, for its token counts."""

    __slots__ = ("record", "state")

    def __init__(self, record: Record, state: Any) -> None:
        self.record = record
        self.state = state


class Front:
    """What the hooks know of one client's request (`Record.engine`)."""

    __slots__ = ("milestones", "processed_ns", "sent")

    def __init__(self) -> None:
        # Each with the stage that it ends. The stages are made at the end, when no first token waits for it.
        self.milestones: list[tuple[str, int]] = []
        self.processed_ns = 0
        self.sent: dict[str, _Sent] = {}

    def close(self, record: Record, end_ns: int) -> None:
        """The answer is complete, or the client is gone."""
        try:
            if not self.sent and record.attributes.get("http.response.status_code", 0) >= 400:
                self.milestones.append(("admission", end_ns))
            fill(record, record.start_ns, self.milestones)
            if self.processed_ns:
                fill(record, self.processed_ns, [("postprocess", end_ns)])
            if self.sent:
                self._count(record)
                for request_id in self.sent:
                    _pending.pop(request_id, None)
        except Exception:
            fault("the end of a request")

    def _count(self, record: Record) -> None:
        """Tokens as the engine counted them; a usage frame of the answer wins over these later."""
        states = [sent.state for sent in self.sent.values() if sent.state is not None]
        prompts: dict[int, int] = {}
        output = 0
        for state in states:
            parent = getattr(state, "parent_req", None)
            prompts[id(parent) if parent is not None else id(state)] = getattr(state, "prompt_len", 0) or 0
            detokenizer = getattr(state, "detokenizer", None)
            if detokenizer is not None:
                output += detokenizer.num_output_tokens()
        if not states:
            return
        record.attributes.setdefault("gen_ai.usage.input_tokens", sum(prompts.values()))
        record.attributes.setdefault("gen_ai.usage.output_tokens", output)
        cached = getattr(states[0], "num_cached_tokens", None)
        if cached:
            record.attributes.setdefault("gen_ai.usage.cache_read.input_tokens", cached)
        record.attributes.setdefault("tailtrace.tokens_source", "engine")
        record.set("engine_request_id", next(iter(self.sent)))
        if len(states) > 1 and len(prompts) == 1:
            record.set("n", len(states))


class _Refused:
    """Stands in `engine` of requests that never came to a handler: their time was the reading of their body."""

    def close(self, record: Record, end_ns: int) -> None:
        try:
            if record.attributes.get("http.response.status_code", 0) >= 400:
                fill(record, record.start_ns, [("parse", end_ns)])
        except Exception:
            fault("the end of a refused request")


def fill(record: Record, since_ns: int, milestones: Sequence[tuple[str, int]]) -> None:
    """Mark the stage that each milestone ends wherever no stage of the record has the time since the one before."""
    taken = sorted([(stage.start_ns, stage.end_ns) for stage in record.stages])
    for stage, end_ns in milestones:
        for begin_ns, over_ns in taken:
            if begin_ns >= end_ns:
                break
            if over_ns > since_ns:
                if begin_ns > since_ns:
                    record.mark(stage, since_ns, begin_ns)
                since_ns = over_ns
        if end_ns > since_ns:
            record.mark(stage, since_ns, end_ns)
            since_ns = end_ns


def _milestone(stage: str) -> Record | None:
    """The current request's moment that ends `stage`; None outside of a recorded request. The first token waits for
    whoever calls this, so it is one plain function."""
    try:
        record = CURRENT.get()
        if type(record) is not Record:
            record = current_request()
        if record is None or record.end_ns or not record.sampled:
            return None
        front = record.engine
        if type(front) is not Front:
            front = record.engine = Front()
        front.milestones.append((stage, clock.now_ns()))
        return record
    except Exception:
        fault(f"the end of {stage}")
        return None


def hook(module: Any) -> None:
    """Hook one of the API server's modules."""
    name = module.__name__
    if name == "fastapi.routing":
        replace("fastapi", module, "run_endpoint_function", _endpoint, gives="parse")
    elif name == "vllm.renderers.base":
        for path in ("BaseRenderer.render_cmpl_async", "BaseRenderer.render_chat_async"):
            replace("vllm", module, path, _render, gives="admission apart from template")
        replace("vllm", module, "BaseRenderer.tokenize_prompts_async", _tokenize, gives="template, tokenize")
    elif name == "vllm.v1.engine.output_processor":
        records.engine_of_new = _Refused()
        replace(
            "vllm", module, "OutputProcessor.add_request", _add_request, needs=("request",), gives="one trace for all"
        )
        replace(
            "vllm", module, "OutputProcessor.process_outputs", _process_outputs, needs=("engine_core_outputs",),
            gives="engine_return, detokenize, postprocess",
        )  # fmt: skip


def _serving() -> bool:
    """Whether vLLM is in this process; FastAPI's hook is also there for other apps."""
    return "vllm.v1.engine.output_processor" in sys.modules


def _endpoint(original: Any) -> Any:
    def run_endpoint_function(*args: Any, **kwargs: Any) -> Any:
        if _serving():
            _milestone("parse")
        return original(*args, **kwargs)

    return run_endpoint_function


def _render(original: Any) -> Any:
    def render(*args: Any, **kwargs: Any) -> Any:
        _milestone("admission")
        return original(*args, **kwargs)

    return render


def _tokenize(original: Any) -> Any:
    async def tokenize_prompts_async(*args: Any, **kwargs: Any) -> Any:
        _milestone("template")
        try:
            return await original(*args, **kwargs)
        finally:
            _milestone("tokenize")

    return tokenize_prompts_async


def _add_request(original: Any) -> Any:
    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, request, *args, **kwargs)
        try:
            record = _milestone("engine_submit")
            if record is not None:
                request_id = request.request_id
                front = record.engine
                sent_ns = front.milestones[-1][1]
                front.sent[request_id] = _pending[request_id] = _Sent(record, self.request_states.get(request_id))
                headers: Mapping[str, str] = request.trace_headers or {}
                request.trace_headers = {
                    "traceparent": traceparent_of(record), **headers, SENT_KEY: str(sent_ns + clock.anchor_ns())
                }  # fmt: skip
        except Exception:
            fault("OutputProcessor.add_request")
        return result

    return add_request


def _process_outputs(original: Any) -> Any:
    def process_outputs(
        self: Any, engine_core_outputs: Any, engine_core_timestamp: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if not _pending:
            return original(self, engine_core_outputs, engine_core_timestamp, *args, **kwargs)
        start_ns = clock.now_ns()
        before = len(getattr(self, "request_states", ()))
        result = original(self, engine_core_outputs, engine_core_timestamp, *args, **kwargs)
        try:
            states = self.request_states
            if len(states) == before:
                return result
            for output in engine_core_outputs:
                if output.request_id not in states:
                    sent = _pending.pop(output.request_id, None)
                    if sent is not None:
                        _returned(sent.record, engine_core_timestamp, start_ns)
        except Exception:
            fault("OutputProcessor.process_outputs")
        return result

    return process_outputs


def _returned(record: Record, produced_s: float | None, start_ns: int) -> None:
    """The last output of an engine request is processed. `produced_s` is the engine core's monotonic clock, which is
    this process's too where both are on one host."""
    front = record.engine
    now_ns = clock.now_ns()
    if record.end_ns or type(front) is not Front:
        return
    produced_ns = round(produced_s * 1e9) if produced_s else start_ns
    if 0 <= start_ns - produced_ns < _RETURN_LIMIT_NS:
        record.mark("engine_return", produced_ns, start_ns)
    record.mark("detokenize", start_ns, now_ns)
    front.processed_ns = now_ns

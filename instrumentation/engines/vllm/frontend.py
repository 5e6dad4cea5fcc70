"""The API server's half: parse, admission, template, tokenize, engine_submit, engine_return, detokenize, postprocess.

A request's milestones follow each other: what lies between two of them and is no stage of its own yet (authentication,
a body being received) becomes the stage that the second one ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailtrace.instrumentation import clock
from tailtrace.instrumentation import record as records
from tailtrace.instrumentation.context import current_request, traceparent_of
from tailtrace.instrumentation.engines.patch import fault, replace
from tailtrace.instrumentation.record import Record

# Beside `traceparent` in a request's trace headers: when it was handed over, ns since the Unix epoch.
SENT_KEY: Final = "tailtrace-sent"
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

    __slots__ = ("processed_ns", "sent", "since_ns")

    def __init__(self, start_ns: int) -> None:
        self.since_ns = start_ns
        self.processed_ns = 0
        self.sent: dict[str, _Sent] = {}

    def reach(self, record: Record, stage: str, now_ns: int) -> None:
        """The milestone that ends `stage`."""
        fill(record, stage, self.since_ns, now_ns)
        self.since_ns = now_ns

    def close(self, record: Record, end_ns: int) -> None:
        """The answer is complete, or the client is gone."""
        try:
            if self.processed_ns:
                fill(record, "postprocess", self.processed_ns, end_ns)
            elif not self.sent and record.attributes.get("http.response.status_code", 0) >= 400:
                fill(record, "admission", self.since_ns, end_ns)
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
                fill(record, "parse", record.start_ns, end_ns)
        except Exception:
            fault("the end of a refused request")


def fill(record: Record, stage: str, start_ns: int, end_ns: int) -> None:
    """Mark `stage` wherever no stage of the record has the time between two marks."""
    taken = sorted((s.start_ns, s.end_ns) for s in record.stages if s.start_ns < end_ns and s.end_ns > start_ns)
    for begin_ns, over_ns in taken:
        if begin_ns > start_ns:
            record.mark(stage, start_ns, begin_ns)
        start_ns = max(start_ns, over_ns)
    if end_ns > start_ns:
        record.mark(stage, start_ns, end_ns)


def _front() -> tuple[Record, Front] | None:
    """The current request and what is known of it; None outside of a request."""
    record = current_request()
    if record is None or record.end_ns:
        return None
    front = record.engine
    if type(front) is not Front:
        front = record.engine = Front(record.start_ns)
    return record, front


def _milestone(stage: str, place: str) -> None:
    try:
        found = _front()
        if found is not None:
            found[1].reach(found[0], stage, clock.now_ns())
    except Exception:
        fault(place)


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
    import sys

    return "vllm.v1.engine.output_processor" in sys.modules


def _endpoint(original: Any) -> Any:
    async def run_endpoint_function(*args: Any, **kwargs: Any) -> Any:
        if _serving():
            _milestone("parse", "run_endpoint_function")
        return await original(*args, **kwargs)

    return run_endpoint_function


def _render(original: Any) -> Any:
    async def render(*args: Any, **kwargs: Any) -> Any:
        _milestone("admission", "BaseRenderer.render")
        return await original(*args, **kwargs)

    return render


def _tokenize(original: Any) -> Any:
    async def tokenize_prompts_async(*args: Any, **kwargs: Any) -> Any:
        _milestone("template", "BaseRenderer.tokenize_prompts_async")
        try:
            return await original(*args, **kwargs)
        finally:
            _milestone("tokenize", "BaseRenderer.tokenize_prompts_async")

    return tokenize_prompts_async


def _add_request(original: Any) -> Any:
    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, request, *args, **kwargs)
        try:
            found = _front()
            if found is not None and found[0].sampled:
                record, front = found
                request_id = request.request_id
                now_ns = clock.now_ns()
                front.reach(record, "engine_submit", now_ns)
                sent = _Sent(record, self.request_states.get(request_id))
                front.sent[request_id] = _pending[request_id] = sent
                headers: Mapping[str, str] = request.trace_headers or {}
                request.trace_headers = {
                    "traceparent": traceparent_of(record), **headers, SENT_KEY: str(now_ns + clock.anchor_ns())
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
        result = original(self, engine_core_outputs, engine_core_timestamp, *args, **kwargs)
        try:
            states = self.request_states
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

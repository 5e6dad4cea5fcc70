"""SGLang: queue, prefill, decode, preempted and steps, from the scheduler's most stable methods.

Written from SGLang's source (0.5.15 to 0.5.23) and tested on fakes only: no GPU was there to run it. The scheduler
process gets the request's `traceparent` from the tokenizer manager, which SGLang itself carries only when its own
tracing is on; here it travels in `external_trace_header` where the request has that field. A request without it is in
the steps and has no stages of its own. Overlapped scheduling handles batch N while N+1 runs: a step is paired with its
result by the batch object, never by nesting.
"""

from __future__ import annotations

import os
from typing import Any, Final

from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.context import extract, inject
from tailtrace.instrumentation.engines.patch import fault, replace
from tailtrace.instrumentation.record import Scope
from tailtrace.instrumentation.run.importhook import when_imported
from tailtrace.instrumentation.run.process import record_here
from tailtrace.instrumentation.stage import stage_from
from tailtrace.instrumentation.steps import record_step

_MAX_KNOWN: Final = 65_536
_SCHEDULER: Final = "sglang.srt.managers.scheduler"
_TOKENIZER: Final = "sglang.srt.managers.tokenizer_manager"


class _Known:
    """What is remembered of one request: since when it is in its present stage."""

    __slots__ = ("scope", "since_ns", "stage")

    def __init__(self, scope: Scope | None, since_ns: int) -> None:
        self.scope = scope
        self.since_ns = since_ns
        self.stage = "queue"


class _Engine:
    """What one scheduler process knows."""

    def __init__(self) -> None:
        self.described = False
        self.requests: dict[str, _Known] = {}
        self.started: dict[int, int] = {}
        self.preempted: list[str] = []


_engine = _Engine()


def activate() -> None:
    """Entry point of the group `sglang.srt.plugins`, under the same condition as vLLM's."""
    named = "tailtrace" in os.environ.get("SGLANG_PLUGINS", "").split(",")
    if not (named or os.environ.get("TAILTRACE_RUN") or os.environ.get("TAILTRACE_SGLANG", "") in {"1", "true"}):
        return
    for name in (_SCHEDULER, _TOKENIZER):
        when_imported(name, hook)


def hook(module: Any) -> None:
    """Hook one of SGLang's modules that has just been imported."""
    if module.__name__ == _TOKENIZER:
        replace("sglang", module, "TokenizerManager.generate_request", _generate, needs=("obj",), gives="stages")
        return
    replace("sglang", module, "Scheduler._add_request_to_queue", _add, needs=("req",), gives="queue")
    replace("sglang", module, "Scheduler.run_batch", _run, needs=("batch",), gives="prefill, decode and steps")
    replace("sglang", module, "Scheduler.process_batch_result", _processed, needs=("batch",), gives="decode and steps")


def _generate(original: Any) -> Any:
    """Gives the request the context that it has here, where SGLang has a field for it."""

    def generate_request(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if runtime.active is not None and getattr(obj, "external_trace_header", 0) is None:
                headers: dict[str, str] = {}
                inject(headers)
                if headers:
                    obj.external_trace_header = headers
        except Exception:
            fault("TokenizerManager.generate_request")
        return original(self, obj, *args, **kwargs)

    return generate_request


def _add(original: Any) -> Any:
    def _add_request_to_queue(self: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            _added(self, req, bool(args[0] if args else kwargs.get("is_retracted", False)))
        except Exception:
            fault("Scheduler._add_request_to_queue")
        return original(self, req, *args, **kwargs)

    return _add_request_to_queue


def _added(scheduler: Any, req: Any, retracted: bool) -> None:
    now_ns = clock.now_ns()
    if not _engine.described:
        _engine.described = True
        args = getattr(scheduler, "server_args", None)
        record_here(
            "scheduler",
            service_name="sglang",
            **{
                name: value
                for name, value in (
                    ("engine", "sglang"),
                    ("model", getattr(args, "served_model_name", None)),
                    ("tp", getattr(args, "tp_size", None)),
                    ("pp", getattr(args, "pp_size", None)),
                    ("quantization", getattr(args, "quantization", None)),
                )
                if value
            },
        )
    if runtime.active is None:
        return
    known = _engine.requests.get(req.rid)
    if retracted:
        _engine.preempted.append(req.rid)
        if known is not None:
            _leave(known, now_ns, "preempted")
    elif known is None and len(_engine.requests) < _MAX_KNOWN:
        headers = getattr(req, "external_trace_header", None)
        _engine.requests[req.rid] = _Known(extract(headers) if headers else None, now_ns)


def _leave(known: _Known, now_ns: int, into: str) -> None:
    """The end of the stage that a request is in, and the beginning of the next."""
    if known.scope is not None and into != known.stage:
        stage_from(known.since_ns, known.stage, scope=known.scope, end_ns=now_ns)
    if into != known.stage:
        known.since_ns, known.stage = now_ns, into


def _run(original: Any) -> Any:
    def run_batch(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if runtime.active is not None:
                now_ns = clock.now_ns()
                if len(_engine.started) >= _MAX_KNOWN:
                    _engine.started.clear()
                _engine.started[id(batch)] = now_ns
                for req in batch.reqs:
                    known = _engine.requests.get(req.rid)
                    if known is not None and known.stage in ("queue", "preempted"):
                        _leave(known, now_ns, "decode" if getattr(req, "output_ids", None) else "prefill")
        except Exception:
            fault("Scheduler.run_batch")
        return original(self, batch, *args, **kwargs)

    return run_batch


def _processed(original: Any) -> Any:
    def process_batch_result(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        reqs = list(getattr(batch, "reqs", ()))
        result = original(self, batch, *args, **kwargs)
        try:
            if runtime.active is not None:
                _finished(self, batch, reqs)
        except Exception:
            fault("Scheduler.process_batch_result")
        return result

    return process_batch_result


def _finished(scheduler: Any, batch: Any, reqs: list[Any]) -> None:
    now_ns = clock.now_ns()
    extends = bool(batch.forward_mode.is_extend())
    for req in reqs:
        known = _engine.requests.get(req.rid)
        if known is None:
            continue
        if known.stage == "prefill" and getattr(req, "output_ids", None):
            _leave(known, now_ns, "decode")
        if req.finished():
            _leave(known, now_ns, "done")
            del _engine.requests[req.rid]
    started_ns = _engine.started.pop(id(batch), 0)
    if not started_ns:
        return
    preempted, _engine.preempted = _engine.preempted, []
    lengths = getattr(batch, "extend_lens", None) if extends else None
    prefill = {req.rid: int(length) for req, length in zip(reqs, lengths or (), strict=False)}
    waiting = getattr(scheduler, "waiting_queue", None)
    record_step(
        started_ns,
        now_ns,
        prefill=prefill,
        preempted=preempted,
        running=len(reqs),
        waiting=None if waiting is None else len(waiting),
        decode_tokens=0 if extends else len(reqs),
    )

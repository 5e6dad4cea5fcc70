"""The engine core's half: the end of engine_submit, grammar, queue, kv_load or kv_transfer, prefill or forward, decode,
preempted; and the steps.

queue begins when the request is there (end of `preprocess_add_request`, in the input thread), so that its wait in the
input queue for the running step counts, which vLLM's own `time_in_queue` leaves out. Everything in the busy loop is a
clock read, a few look-ups and a list write; per step it costs by requests that begin or end, not by those that decode.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from tailtrace.instrumentation import clock, record, runtime
from tailtrace.instrumentation.context import is_sampled
from tailtrace.instrumentation.engines.patch import fault, replace
from tailtrace.instrumentation.engines.vllm.identity import identity
from tailtrace.instrumentation.engines.vllm.spans import EngineRequest, EngineStep
from tailtrace.instrumentation.run.process import record_here
from tailtrace.instrumentation.steps import engine_id

_MAX_KNOWN: Final = 65_536
_MAX_STEPS_IN_FLIGHT: Final = 64


class _Core:
    """What one engine core process knows."""

    def __init__(self) -> None:
        self.described = False
        self.engine_id = ""
        self.requests: dict[str, EngineRequest] = {}
        # Scheduled, and their next token not there yet: their tokens of a step are prefill.
        self.prefilling: dict[str, None] = {}
        self.preempted: list[str] = []
        self.steps: dict[int, EngineStep] = {}
        self.updating = False
        self.finished: list[EngineRequest] = []


_core = _Core()


def hook(module: Any) -> None:
    """Hook one of the engine core's modules."""
    if module.__name__ == "vllm.v1.engine.core":
        replace(
            "vllm", module, "EngineCore.preprocess_add_request", _preprocess, needs=("request",),
            gives="queue, prefill, decode",
        )  # fmt: skip
        return
    gives = "queue, prefill, decode and steps"
    replace("vllm", module, "Scheduler.schedule", _schedule, gives=gives)
    replace("vllm", module, "Scheduler.update_from_output", _update, needs=("scheduler_output",), gives=gives)
    replace(
        "vllm", module, "Scheduler._update_from_kv_xfer_finished", _fetched, needs=("kv_connector_output",),
        gives="the end of kv_load and kv_transfer",
    )  # fmt: skip
    replace("vllm", module, "Scheduler._free_request", _free, needs=("request",), gives="the end of decode")
    replace("vllm", module, "Scheduler._preempt_request", _preempt, needs=("request",), gives="preempted")


def _preprocess(original: Any) -> Any:
    def preprocess_add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, request, *args, **kwargs)
        try:
            _accepted(self, request, result)
        except Exception:
            fault("EngineCore.preprocess_add_request")
        return result

    return preprocess_add_request


def _accepted(engine: Any, request: Any, result: Any) -> None:
    now_ns = clock.now_ns()
    if not _core.described:
        _core.described = True
        config = getattr(engine, "vllm_config", None)
        if record_here("scheduler", service_name="vllm", **(identity(config) if config is not None else {})):
            _core.engine_id = _engine_id(config)
            runtime.describe(engine_id=_core.engine_id)
    headers = request.trace_headers
    if not headers or runtime.active is None or len(_core.requests) >= _MAX_KNOWN or not is_sampled(headers):
        return
    known = _core.requests[request.request_id] = EngineRequest(
        request.request_id, headers, now_ns, getattr(request, "pooling_params", None) is not None
    )
    scheduled = result[0] if isinstance(result, tuple) else result
    structured = getattr(scheduled, "structured_output_request", None)
    if structured is None:
        return
    grammar = getattr(structured, "_grammar", None)
    if isinstance(grammar, Future):
        known.grammar_ns = -1
        grammar.add_done_callback(partial(_compiled, known))


def _compiled(known: EngineRequest, grammar: Future[Any]) -> None:
    """In the thread that compiled it."""
    known.grammar_ns = clock.now_ns()


def _find_fetches(scheduler: Any, now_ns: int) -> None:
    """Requests whose KV cache is being fetched since this `schedule()`."""
    for waiting in (scheduler.waiting, getattr(scheduler, "kv_holding_waiting", ())):
        for request in waiting:
            if getattr(request.status, "name", "") != "WAITING_FOR_REMOTE_KVS":
                continue
            known = _core.requests.get(request.request_id)
            if known is not None and not known.fetching_ns:
                known.fetching_ns = now_ns
                handed_over = (request.kv_transfer_params or {}).get("do_remote_prefill")
                known.fetch = "kv_transfer" if handed_over else "kv_load"


def _fetched(original: Any) -> Any:
    def _update_from_kv_xfer_finished(self: Any, kv_connector_output: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            now_ns = clock.now_ns()
            for request_id in kv_connector_output.finished_recving or ():
                known = _core.requests.get(request_id)
                if known is not None and known.fetching_ns and not known.fetched_ns:
                    known.fetched_ns = now_ns
        except Exception:
            fault("Scheduler._update_from_kv_xfer_finished")
        return original(self, kv_connector_output, *args, **kwargs)

    return _update_from_kv_xfer_finished


def _engine_id(config: Any) -> str:
    """`host.id/pid/dp_rank`."""
    rank = getattr(getattr(config, "parallel_config", None), "data_parallel_rank", 0) or 0
    return f"{engine_id().rpartition('/')[0]}/{rank}"


def _schedule(original: Any) -> Any:
    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = clock.now_ns()
        output = original(self, *args, **kwargs)
        if runtime.active is not None:
            try:
                _scheduled(self, output, start_ns)
            except Exception:
                fault("Scheduler.schedule")
        return output

    return schedule


def _scheduled(scheduler: Any, output: Any, start_ns: int) -> None:
    requests, prefilling = _core.requests, _core.prefilling
    if getattr(scheduler, "connector", None) is not None:
        _find_fetches(scheduler, clock.now_ns())
    new = output.scheduled_new_reqs
    resumed = getattr(output.scheduled_cached_reqs, "resumed_req_ids", None)
    if new or resumed:
        now_ns = clock.now_ns()
        for one in new:
            prefilling[one.req_id] = None
            known = requests.get(one.req_id)
            if known is not None and not known.scheduled_ns:
                known.scheduled_ns = now_ns
        for request_id in resumed or ():
            prefilling[request_id] = None
            known = requests.get(request_id)
            if known is not None and len(known.preempted) % 2:
                known.preempted.append(now_ns)
    total = output.total_num_scheduled_tokens
    # A list of its own for each step: it is read only when the step is sent.
    preempted, _core.preempted = _core.preempted, []
    if not total and not preempted:
        return
    prefill: list[tuple[str, int]] = []
    if prefilling:
        tokens = output.num_scheduled_tokens
        prefill = [(name, tokens[name]) for name in prefilling if name in tokens]
    waiting = len(scheduler.waiting)
    holding = getattr(scheduler, "kv_holding_waiting", None)
    deferred = getattr(scheduler, "deferred_waiting", None)
    manager = getattr(scheduler, "kv_cache_manager", None)
    if len(_core.steps) >= _MAX_STEPS_IN_FLIGHT:
        _core.steps.clear()
    # With several batches in flight, a step's end is known by the very object that its schedule gave.
    _core.steps[id(output)] = EngineStep(
        _core.engine_id,
        start_ns,
        len(scheduler.running),
        waiting + len(holding) if holding else waiting,
        len(deferred) if deferred else 0,
        total,
        getattr(manager, "usage", None),
        prefill,
        preempted,
    )


def _update(original: Any) -> Any:
    def update_from_output(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if runtime.active is None:
            return original(self, scheduler_output, *args, **kwargs)
        _core.updating = True
        try:
            result = original(self, scheduler_output, *args, **kwargs)
        finally:
            _core.updating = False
        try:
            _updated(self, scheduler_output, result)
        except Exception:
            fault("Scheduler.update_from_output")
        return result

    return update_from_output


def _updated(scheduler: Any, output: Any, result: Any) -> None:
    now_ns = clock.now_ns()
    if isinstance(result, dict):
        # The outputs' own time stamp: the API server gets the same number, and its engine_return begins there.
        for outputs in result.values():
            now_ns = min(now_ns, round(outputs.timestamp * 1e9))
            break
    step = _core.steps.pop(id(output), None)
    if step is not None:
        step.end_ns = max(now_ns, step.start_ns)
        record.submit(step)
    if _core.prefilling:
        _find_first_tokens(scheduler, output, now_ns)
    for known in _core.finished:
        known.first_ns = known.first_ns or (now_ns if known.scheduled_ns else 0)
        known.end_ns = now_ns
        record.submit(known)
    _core.finished = []


def _find_first_tokens(scheduler: Any, output: Any, now_ns: int) -> None:
    alive, scheduled = scheduler.requests, output.num_scheduled_tokens
    for request_id in list(_core.prefilling):
        if request_id not in scheduled:
            continue
        request = alive.get(request_id)
        known = _core.requests.get(request_id)
        if request is None:
            del _core.prefilling[request_id]
        elif request.num_output_tokens:
            if request.num_computed_tokens >= request.num_prompt_tokens:
                del _core.prefilling[request_id]
            if known is not None and not known.first_ns:
                known.first_ns = now_ns


def _free(original: Any) -> Any:
    def _free_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            _ended(request)
        except Exception:
            fault("Scheduler._free_request")
        return original(self, request, *args, **kwargs)

    return _free_request


def _ended(request: Any) -> None:
    """A request leaves the scheduler: finished inside `update_from_output`, or aborted between steps."""
    _core.prefilling.pop(request.request_id, None)
    known = _core.requests.pop(request.request_id, None)
    if known is None:
        return
    if _core.updating:
        _core.finished.append(known)
        return
    known.end_ns = clock.now_ns()
    known.outcome = "cancelled"
    record.submit(known)


def _preempt(original: Any) -> Any:
    def _preempt_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            _core.preempted.append(request.request_id)
            known = _core.requests.get(request.request_id)
            if known is not None and len(known.preempted) % 2 == 0:
                known.preempted.append(clock.now_ns())
        except Exception:
            fault("Scheduler._preempt_request")
        return original(self, request, *args, **kwargs)

    return _preempt_request

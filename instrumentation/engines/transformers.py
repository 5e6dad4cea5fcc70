"""Hugging Face transformers: prefill and decode of `generate`; queue, prefill, decode of continuous batching.

Of continuous batching only the manager's public methods are watched: its outputs carry the times of their own request.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Final

from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.context import current_scope
from tailtrace.instrumentation.engines.patch import fault, replace
from tailtrace.instrumentation.record import Scope
from tailtrace.instrumentation.runner import watch_generate
from tailtrace.instrumentation.stage import stage_from

_MAX_KNOWN: Final = 65_536

# Whose request each id is, from its submission to its last output.
_submitted: OrderedDict[str, Scope] = OrderedDict()


def hook_generate(module: Any) -> None:
    """`GenerationMixin.generate`: a streamer of ours goes in beside the caller's."""
    replace(
        "transformers", module, "GenerationMixin.generate", watch_generate, needs=("streamer",),
        gives="prefill, decode of generate",
    )  # fmt: skip


def hook_streamers(module: Any) -> None:
    """`TextStreamer`, under the iterating ones too: remembers whose request it was made in."""
    replace("transformers", module, "TextStreamer.__init__", _streamer, gives="prefill, decode of generate in a thread")


def _streamer(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - stands in its place
        original(self, *args, **kwargs)
        if runtime.active is not None:
            self.tailtrace_scope = current_scope()

    return __init__


def hook_continuous_batching(module: Any) -> None:
    """`ContinuousBatchingManager`: submission, and both ways in which outputs come back."""
    gives = "queue, prefill, decode of continuous batching"
    for method, make, needs in (
        ("add_request", _add_request, ("request_id", "record_timestamps")),
        ("get_result", _get_result, ()),
        ("register_result_handler", _register, ("request_id", "callback")),
    ):
        replace("transformers", module, f"ContinuousBatchingManager.{method}", make, needs=needs, gives=gives)


def _add_request(original: Any) -> Any:
    def add_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = current_scope() if runtime.active is not None else None
        if scope is not None and len(args) < 5:
            # Where its first token is known, prefill can be told from decode.
            kwargs["record_timestamps"] = True
        request_id = original(self, *args, **kwargs)
        if scope is not None and request_id is not None:
            _submitted[request_id] = scope
            if len(_submitted) > _MAX_KNOWN:
                _submitted.popitem(last=False)
        return request_id

    return add_request


def _get_result(original: Any) -> Any:
    def get_result(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if result is not None:
            _came_back(result)
        return result

    return get_result


def _register(original: Any) -> Any:
    def register_result_handler(self: Any, request_id: str, callback: Any, *args: Any, **kwargs: Any) -> Any:
        def watched(result: Any) -> Any:
            _came_back(result)
            return callback(result)

        return original(self, request_id, watched, *args, **kwargs)

    return register_result_handler


def _came_back(output: Any) -> None:
    """Stages from a finished output: `time.perf_counter` of creation, first scheduling, each token, and the end."""
    try:
        if not output.is_finished():
            return
        scope = _submitted.pop(output.request_id, None)
        begun, ended = output.lifespan
        if scope is None or ended < 0:
            return
        now_ns = clock.now_ns()
        offset_ns = now_ns - time.perf_counter_ns()
        created_ns, ended_ns = (round(seconds * 1e9) + offset_ns for seconds in (output.created_time, ended))
        begun_ns = round(begun * 1e9) + offset_ns if begun >= 0 else ended_ns
        stage_from(created_ns, "queue", end_ns=begun_ns, scope=scope)
        stamps = output.timestamps or ()
        first_ns = round(stamps[0] * 1e9) + offset_ns if stamps else ended_ns
        if begun >= 0:
            stage_from(begun_ns, "prefill" if stamps else "forward", end_ns=first_ns, scope=scope)
        if first_ns < ended_ns:
            stage_from(first_ns, "decode", end_ns=ended_ns, scope=scope)
        stage_from(ended_ns, "engine_return", end_ns=now_ns, scope=scope)
    except Exception:
        fault("ContinuousBatchingManager")

"""llama-cpp-python: tokenize, prefill and decode, from `Llama`'s public methods.

Written from its source (0.3.35) and tested on fakes only. prefill runs from the first step of `generate` to the first
token, decode from there to the generator's end. The server lets one call at a time into a model; the wait for that lock
has no method of its own and stays unexplained.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.context import current_scope
from tailtrace.instrumentation.engines.patch import fault, replace
from tailtrace.instrumentation.record import Scope
from tailtrace.instrumentation.stage import stage_from


def hook(module: Any) -> None:
    """Hook `llama_cpp.llama`, which has just been imported."""
    replace("llama_cpp", module, "Llama.tokenize", _tokenize, gives="tokenize")
    replace("llama_cpp", module, "Llama.generate", _generate, gives="prefill, decode")


def _tokenize(original: Any) -> Any:
    def tokenize(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = clock.now_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            _tell(start_ns, "tokenize", current_scope())

    return tokenize


def _generate(original: Any) -> Any:
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = original(self, *args, **kwargs)
        return _timed(inner, current_scope()) if runtime.active is not None else inner

    return generate


def _timed(inner: Generator[int, Any, None], scope: Scope | None) -> Generator[int, Any, None]:
    """The same tokens, what is sent in passed on; the request is the one in which `generate` was called."""
    start_ns, first_ns = clock.now_ns(), 0
    sent: Any = None
    try:
        while True:
            try:
                token = inner.send(sent)
            except StopIteration:
                return
            if not first_ns:
                first_ns = clock.now_ns()
                _tell(start_ns, "prefill", scope, first_ns)
            sent = yield token
    finally:
        inner.close()
        if first_ns:
            _tell(first_ns, "decode", scope)


def _tell(start_ns: int, stage: str, scope: Scope | None, end_ns: int = 0) -> None:
    if runtime.active is None or scope is None:
        return
    try:
        stage_from(start_ns, stage, scope=scope, end_ns=end_ns)
    except Exception:
        fault(f"Llama, {stage}")

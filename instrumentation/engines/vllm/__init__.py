"""vLLM (V1 engine): every stage of a request, across the API server's and the engine core's processes.

Each boundary is a mark of its own, and the end of one stage is the beginning of the next. The API server's half
(`frontend`) hangs its marks on the request that the gateway recorded; the trace's identity travels to the engine core
in `EngineCoreRequest.trace_headers`, and that half (`core`) sends its stages as children of the same span.
"""

from __future__ import annotations

import os
from typing import Any


def hook(module: Any) -> None:
    """Hook one of vLLM's modules, or FastAPI's where vLLM serves with it, that has just been imported."""
    name = module.__name__
    if name in {"vllm.v1.engine.core", "vllm.v1.core.sched.scheduler"}:
        from tailtrace.instrumentation.engines.vllm import core

        core.hook(module)
    else:
        from tailtrace.instrumentation.engines.vllm import frontend

        frontend.hook(module)


def activate() -> None:
    """Entry point of the group `vllm.general_plugins`: vLLM calls it in each of its processes, perhaps several times.

    Does nothing unless asked to, by `tailtrace run`, TAILTRACE_VLLM=1 or VLLM_PLUGINS naming it: that it is installed
    beside vLLM is not a wish to record. Starts nothing; recording begins where a process begins to serve.
    """
    named = "tailtrace" in os.environ.get("VLLM_PLUGINS", "").split(",")
    if not (named or os.environ.get("TAILTRACE_RUN") or os.environ.get("TAILTRACE_VLLM", "") in {"1", "true"}):
        return
    from tailtrace.instrumentation.run.importhook import when_imported
    from tailtrace.instrumentation.run.targets import TARGETS, installed

    for name in TARGETS:
        when_imported(name, installed)

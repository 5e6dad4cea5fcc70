"""Normalisers: what the spans of each inference engine mean, used by the job and by the request page alike."""

from __future__ import annotations

from typing import Final

from tailtrace.analytics.engines.dynamo import DYNAMO
from tailtrace.analytics.engines.engine import Engine
from tailtrace.analytics.engines.gateways import LITELLM, LLM_D, RAY_SERVE
from tailtrace.analytics.engines.sglang import SGLANG
from tailtrace.analytics.engines.tensorrt_llm import TENSORRT_LLM
from tailtrace.analytics.engines.tgi import TGI
from tailtrace.analytics.engines.triton import TRITON
from tailtrace.analytics.engines.vllm import VLLM

# The order decides where two engines could claim a span of a shared scope.
ENGINES: Final[tuple[Engine, ...]] = (
    VLLM,
    SGLANG,
    TGI,
    TRITON,
    DYNAMO,
    LITELLM,
    TENSORRT_LLM,
    RAY_SERVE,
    LLM_D,
)

__all__ = ["ENGINES", "Engine", "engine_of"]


def engine_of(scope: str, name: str = "") -> Engine | None:
    """The engine that a span of this instrumentation scope and name comes from."""
    owner = next((engine for engine in ENGINES if engine.owns(scope)), None)
    if owner is not None or scope == "tailtrace" or scope.startswith("tailtrace."):
        return owner
    return next((engine for engine in ENGINES if engine.may_share(scope) and engine.shared_names(name)), None)

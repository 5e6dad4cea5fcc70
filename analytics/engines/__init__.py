"""Normalisers: what the spans of each inference engine mean, used by the job and by the request page alike."""

from __future__ import annotations

from typing import Final

from tailtrace.analytics.engines.engine import Engine
from tailtrace.analytics.engines.vllm import VLLM

ENGINES: Final[tuple[Engine, ...]] = (VLLM,)

__all__ = ["ENGINES", "Engine", "engine_of"]


def engine_of(scope: str) -> Engine | None:
    """The engine that a span of this instrumentation scope comes from."""
    return next((engine for engine in ENGINES if engine.owns(scope)), None)

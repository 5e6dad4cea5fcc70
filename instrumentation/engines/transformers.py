"""Hugging Face transformers: prefill and decode of `generate`, and queue, prefill, decode of continuous batching."""

from __future__ import annotations

from typing import Any

from tailtrace.instrumentation.engines.patch import replace
from tailtrace.instrumentation.runner import watch_generate


def hook_generate(module: Any) -> None:
    """`GenerationMixin.generate`: a streamer of ours goes in beside the caller's."""
    replace(
        "transformers", module, "GenerationMixin.generate", watch_generate, needs=("streamer",),
        gives="prefill, decode of generate",
    )  # fmt: skip


def hook_continuous_batching(module: Any) -> None:
    """Not yet."""

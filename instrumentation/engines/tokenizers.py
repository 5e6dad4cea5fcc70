"""Hugging Face tokenizers: `encode` and `decode` are the stages tokenize and detokenize of the request they run in."""

from __future__ import annotations

from typing import Any, Final

from tailtrace.instrumentation.engines.patch import replace
from tailtrace.instrumentation.record import CURRENT, Stage, live

_METHODS: Final = {
    "encode": "tokenize",
    "encode_batch": "tokenize",
    "encode_batch_fast": "tokenize",
    "decode": "detokenize",
    "decode_batch": "detokenize",
}


def hook(module: Any) -> None:
    """The methods of `tokenizers.Tokenizer`, under which transformers' fast tokenizers work too."""
    for method, stage in _METHODS.items():
        replace("tokenizers", module, f"Tokenizer.{method}", _timed(stage), gives=stage)


def _timed(stage: str) -> Any:
    def make(original: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            around = live(CURRENT.get())
            request = around.record if around is not None else None
            # An engine's hooks measure these themselves; a task that outlives its request still has its context.
            if request is None or request.end_ns or request.engine is not None:
                return original(*args, **kwargs)
            if type(around) is Stage and around.name == stage:
                return original(*args, **kwargs)
            with Stage(stage):
                return original(*args, **kwargs)

        return timed

    return make

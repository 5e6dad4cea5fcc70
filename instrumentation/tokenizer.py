"""`wrap_tokenizer(tok)`: tokenize and detokenize stages of any object with encode and decode.

Hugging Face tokenizers, `tokenizers.Tokenizer`, tiktoken, or your own. The object stays what it is (its class becomes a
subclass); a Rust type, which allows neither that nor new attributes, is wrapped in a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from tailtrace.instrumentation import clock
from tailtrace.instrumentation.record import CURRENT, Stage, live

_STAGES: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "__call__", "encode", "encode_batch", "encode_plus", "batch_encode_plus", "encode_ordinary",
            "encode_ordinary_batch", "tokenize",
        ),
        "tokenize",
    ),
    "apply_chat_template": "template",
    **dict.fromkeys(("decode", "decode_batch", "batch_decode", "detokenize", "decode_bytes"), "detokenize"),
}  # fmt: skip

# Detokenizing goes on for every token; a call as short as this is not worth a span, and a token is never one.
_DETOKENIZE_FROM_NS: Final = 100_000


def wrap_tokenizer(tokenizer: Any) -> Any:
    """Time the calls of `tokenizer`; use what is returned in its place."""
    kind = type(tokenizer)
    if getattr(kind, "__tailtrace__", False):
        return tokenizer
    methods = {
        name: _timed(getattr(kind, name), stage)
        for name, stage in _STAGES.items()
        if callable(getattr(kind, name, None)) and name in dir(kind)
    }
    timed = (
        type(kind.__name__, (kind,), {**methods, "__tailtrace__": True, "__module__": kind.__module__})
        if (_can_be_subclassed(kind))
        else None
    )
    if timed is not None:
        try:
            tokenizer.__class__ = timed
            return tokenizer
        except TypeError:
            pass
    return StandIn(tokenizer)


def _can_be_subclassed(kind: type) -> bool:
    try:
        type("probe", (kind,), {})
    except TypeError:
        return False
    return True


def _timed(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    at_least_ns = _DETOKENIZE_FROM_NS if name == "detokenize" else 0

    @wraps(method)
    def timed(*args: Any, **kwargs: Any) -> Any:
        scope = live(CURRENT.get())
        if scope is None or scope.record is None or (type(scope) is Stage and scope.name == name):
            # Outside of a request, or one of these methods calls another.
            return method(*args, **kwargs)
        stage = Stage(name)
        stage.parent = scope
        token = CURRENT.set(stage)
        stage.start_ns = clock.now_ns()
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            stage.error = type(error).__name__
            raise
        finally:
            stage.end_ns = clock.now_ns()
            CURRENT.reset(token)
            if stage.end_ns - stage.start_ns >= at_least_ns:
                scope.record.add(stage)

    return timed


class StandIn:
    """Stands for an object whose class cannot be changed; everything else is reached through it."""

    __tailtrace__ = True

    def __init__(self, inner: Any) -> None:
        self.__dict__["_inner"] = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["_inner"], name)
        stage = _STAGES.get(name)
        if stage is not None and callable(found):
            found = _timed(found, stage)
            self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_inner"], name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _timed(self.__dict__["_inner"], "tokenize")(*args, **kwargs)

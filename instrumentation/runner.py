"""`wrap_model_runner(r)`: the model's compute as stages, and steps for what runs batches.

Objects with `generate` (transformers) give prefill and decode through a streamer of ours beside the user's; objects
with `execute_model` or `forward`, and plain callables, give `forward` and a step a call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from tailtrace.errors import ConfigError
from tailtrace.instrumentation import clock
from tailtrace.instrumentation.record import CURRENT, Record, Scope, Stage, live
from tailtrace.instrumentation.steps import record_step

# What a streamer has been given before its prompt.
_NOTHING: Final = object()
# Inside generate, each token is one call of forward: those are not stages.
_generating: ContextVar[bool] = ContextVar("tailtrace_generating", default=False)


def wrap_model_runner(runner: Any) -> Any:
    """Watch a model; use what is returned in its place (the same object, but for a plain function).

    Raises ConfigError for an object that is not callable and has none of generate, execute_model and forward.
    """
    if getattr(runner, "__tailtrace__", False):
        return runner
    found = False
    if callable(getattr(runner, "generate", None)):
        runner.generate = watch_generate(runner.generate)
        found = True
    for name in ("execute_model", "forward"):
        if callable(getattr(runner, name, None)):
            setattr(runner, name, _forward(getattr(runner, name)))
            found = True
            break
    if not found and callable(runner):
        return _forward(runner)
    if not found:
        raise ConfigError(
            "wrap_model_runner: expected a callable, or an object with generate, execute_model or forward; "
            f"got {type(runner).__name__}"
        )
    runner.__tailtrace__ = True
    return runner


def _forward(function: Callable[..., Any]) -> Any:
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def watched_async(*args: Any, **kwargs: Any) -> Any:
            start_ns = clock.now_ns()
            with Stage("forward"):
                result = await function(*args, **kwargs)
            record_step(start_ns)
            return result

        watched_async.__tailtrace__ = True  # type: ignore[attr-defined]
        return watched_async

    @wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        start_ns = clock.now_ns()
        if _generating.get() or live(CURRENT.get()) is None:
            result = function(*args, **kwargs)
        else:
            with Stage("forward"):
                result = function(*args, **kwargs)
        record_step(start_ns)
        return result

    watched.__tailtrace__ = True  # type: ignore[attr-defined]
    return watched


def watch_generate(function: Callable[..., Any]) -> Any:
    streams = "streamer" in _parameters(function)

    @wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        streamer = kwargs.get("streamer")
        # generate often runs in a thread of its own, which the request's context does not reach: its streamer does.
        scope = live(CURRENT.get()) or live(getattr(streamer, "tailtrace_scope", None))
        marks = Marks(streamer)
        # A streamer is refused where several beams are followed.
        model = getattr(function, "__self__", args[0] if args else None)
        config = kwargs.get("generation_config") or getattr(model, "generation_config", None)
        beams = kwargs.get("num_beams") or getattr(config, "num_beams", None) or 1
        if streams and beams == 1 and scope is not None:
            kwargs["streamer"] = marks
        token = _generating.set(True)
        start_ns = clock.now_ns()
        error = ""
        try:
            return function(*args, **kwargs)
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            _generating.reset(token)
            if scope is not None:
                _deliver(scope, start_ns, marks, error)

    return watched


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


class Marks:
    """A streamer that marks and counts tokens and hands all on to the user's own. It is first given the prompt."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._prompt: Any = _NOTHING
        self.output_tokens = 0
        self.first_ns = 0
        self.last_ns = 0

    def put(self, value: Any) -> None:
        if self._prompt is not _NOTHING:
            self.last_ns = clock.now_ns()
            self.first_ns = self.first_ns or self.last_ns
            self.output_tokens += 1
        else:
            self._prompt = value
        if self._inner is not None:
            self._inner.put(value)

    def end(self) -> None:
        if self._inner is not None:
            self._inner.end()

    @property
    def input_tokens(self) -> int:
        """Of a tensor of ids, or a list of them."""
        count = getattr(self._prompt, "numel", None)
        return int(count()) if callable(count) else len(self._prompt)


def _deliver(scope: Scope, start_ns: int, marks: Marks, error: str) -> None:
    parts = [("forward", start_ns, clock.now_ns())]
    if marks.first_ns:
        parts = [("prefill", start_ns, marks.first_ns), ("decode", marks.first_ns, marks.last_ns)]
    for name, begin_ns, end_ns in parts:
        stage = Stage(name)
        stage.parent, stage.start_ns, stage.end_ns, stage.error = scope, begin_ns, end_ns, error
        stage.deliver()
    if scope.record is not None and marks.output_tokens:
        # A prompt of some other kind, or a count of the user's that is no number, goes without ours.
        with suppress(Exception):
            _count(scope.record, marks)


def _count(record: Record, marks: Marks) -> None:
    """Tokens of this and earlier calls for the request; a usage that its answer tells wins over them."""
    known = record.attributes
    for name, count in (
        ("gen_ai.usage.input_tokens", marks.input_tokens),
        ("gen_ai.usage.output_tokens", marks.output_tokens),
    ):
        record.set(name, known.get(name, 0) + count)
    record.set("tokens_source", "engine")

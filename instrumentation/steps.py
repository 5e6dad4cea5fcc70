"""Engine steps: one small span a step under the scope `tailtrace.steps`, never one for each request in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from tailtrace.instrumentation import clock, ids, record, runtime
from tailtrace.instrumentation.otlp import INTERNAL, SpanData

SCOPE: Final = "tailtrace.steps"
_MINUTE_NS: Final = 60_000_000_000
_MAX_LISTED: Final = 1024


class Step(SpanData):
    """One step's span; the exporter sends it under its own scope."""

    __slots__ = ()
    scope = SCOPE


def engine_id() -> str:
    """This process's engine: what `describe(engine_id=...)` said, else host, pid and rank 0."""
    active = runtime.active
    if active is None:
        return ""
    resource = active.resource
    return str(resource.get("tailtrace.engine_id") or f"{resource['host.id']}/{resource['process.pid']}/0")


def record_step(
    start_ns: int,
    end_ns: int = 0,
    *,
    engine: str = "",
    prefill: Mapping[str, int] | None = None,
    preempted: Sequence[str] = (),
    **numbers: Any,
) -> None:
    """One step from one mark of the clock to another (now, where 0).

    `prefill` maps request ids to the prompt tokens computed in this step; `numbers` are the wire contract's: running,
    waiting, waiting_capacity, waiting_deferred, prefill_tokens, decode_tokens, kv_usage, gpu_ns. None is left out.
    """
    if runtime.active is None:
        return
    end_ns = max(end_ns or clock.now_ns(), start_ns)
    engine = engine or engine_id()
    attributes: dict[str, Any] = {"tailtrace.engine_id": engine}
    for name, value in numbers.items():
        if value is not None:
            attributes[f"tailtrace.{name}"] = value
    if prefill:
        listed = list(prefill.items())[:_MAX_LISTED]
        attributes["tailtrace.prefill"] = ",".join(f"{request}:{tokens}" for request, tokens in listed)
        attributes.setdefault("tailtrace.prefill_tokens", sum(prefill.values()))
    if preempted:
        attributes["tailtrace.preempted"] = ",".join(list(preempted)[:_MAX_LISTED])
    start_unix_ns = start_ns + clock.anchor_ns()
    record.submit(
        Step(
            step_trace_id(engine, start_unix_ns), ids.span_id(), b"", "step", INTERNAL,
            start_unix_ns, end_ns + clock.anchor_ns(), attributes,
        )
    )  # fmt: skip


def step_trace_id(engine: str, unix_ns: int) -> bytes:
    """A trace of its own for each engine and minute, so that a step is found without an index."""
    return blake2b(f"{engine}/{unix_ns // _MINUTE_NS}".encode(), digest_size=16).digest()

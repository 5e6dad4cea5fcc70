"""What the engine core keeps of its requests and steps: bare numbers. Their spans are made in the export thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tailtrace.instrumentation import clock, ids
from tailtrace.instrumentation.context import extract
from tailtrace.instrumentation.encode import encode_stage
from tailtrace.instrumentation.otlp import INTERNAL, encode_span_fields, span_attributes, span_head, span_identity
from tailtrace.instrumentation.record import Stage
from tailtrace.instrumentation.steps import SCOPE, step_trace_id

_MAX_LISTED: Final = 256
# Beside `traceparent` in a request's trace headers: when it was handed over, ns since the Unix epoch.
SENT_KEY: Final = "tailtrace-sent"


class EngineRequest:
    """One request in the engine core, with its trace headers. Times are marks of the clock, 0 where it has not come to
    that."""

    __slots__ = (
        "accepted_ns", "end_ns", "fetch", "fetched_ns", "fetching_ns", "first_ns", "forward", "grammar_ns", "headers",
        "outcome", "preempted", "request_id", "scheduled_ns",
    )  # fmt: skip

    def __init__(self, request_id: str, headers: Mapping[str, str], accepted_ns: int, forward: bool) -> None:
        self.request_id = request_id
        self.headers = headers
        self.accepted_ns = accepted_ns
        self.forward = forward
        # When its grammar was there; -1 until then, 0 for one that needs none.
        self.grammar_ns = 0
        # The fetch of its KV cache, kv_load or kv_transfer: begun and over.
        self.fetch = ""
        self.fetching_ns = 0
        self.fetched_ns = 0
        self.scheduled_ns = 0
        self.first_ns = 0
        self.end_ns = 0
        # Start and end of each wait after a preemption, alternating; an odd count is a wait that never ended.
        self.preempted: list[int] = []
        self.outcome = "ok"

    def _sent_ns(self) -> int:
        """When the API server handed it over, 0 where it does not say."""
        text = self.headers.get(SENT_KEY, "")
        return int(text) - clock.anchor_ns() if text.isdecimal() else 0

    def stages(self) -> list[tuple[str, int, int]]:
        """Name, start and end of each stage; they follow each other without a gap."""
        end_ns = self.end_ns
        found = []
        sent_ns = self._sent_ns()
        if sent_ns:
            found.append(("engine_submit", min(sent_ns, self.accepted_ns), self.accepted_ns))
        found += self._waits(self.scheduled_ns or end_ns)
        if self.scheduled_ns:
            found.append(("forward" if self.forward else "prefill", self.scheduled_ns, self.first_ns or end_ns))
        if self.first_ns and end_ns > self.first_ns and not self.forward:
            found.append(("decode", self.first_ns, end_ns))
        waits = self.preempted if len(self.preempted) % 2 == 0 else [*self.preempted, end_ns]
        found.extend(("preempted", waits[at], waits[at + 1]) for at in range(0, len(waits), 2))
        return found

    def _waits(self, until_ns: int) -> list[tuple[str, int, int]]:
        """From its arrival to its first step: queue, less its grammar's compilation and the fetch of its KV cache."""
        at_ns = self.accepted_ns
        found = []
        if self.grammar_ns:
            ready_ns = until_ns if self.grammar_ns < 0 else min(max(self.grammar_ns, at_ns), until_ns)
            found.append(("grammar", at_ns, ready_ns))
            at_ns = ready_ns
        if self.fetching_ns:
            over_ns = min(self.fetched_ns or until_ns, until_ns)
            if self.fetching_ns > at_ns:
                found.append(("queue", at_ns, self.fetching_ns))
                at_ns = self.fetching_ns
            found.append((self.fetch, at_ns, max(over_ns, at_ns)))
            at_ns = max(over_ns, at_ns)
        if until_ns > at_ns or not found:
            found.append(("queue", at_ns, until_ns))
        return found

    def encode(self, anchor_ns: int) -> bytes:
        """All its stages' spans; none where its headers name no caller."""
        parent = extract(self.headers)
        if parent is None:
            return b""
        identity = span_identity(parent.trace_id, parent.span_id)
        encoded = []
        for name, start_ns, end_ns in self.stages():
            stage = Stage(name, {"gen_ai.request.id": self.request_id})
            if self.outcome != "ok":
                stage.set("tailtrace.outcome", self.outcome)
            stage.start_ns, stage.end_ns = start_ns, max(start_ns, end_ns)
            encoded.append(encode_stage(stage, identity, ids.span_id(), anchor_ns))
        return b"".join(encoded)


@dataclass(slots=True)
class EngineStep:
    """One step: what was running and waiting when it was scheduled, and what it computed.

    `tokens` are all that it computes, `prefill` those of requests that have yet to give one.
    """

    scope: ClassVar = SCOPE
    engine_id: str
    start_ns: int
    running: int
    waiting: int
    deferred: int
    tokens: int
    kv_usage: float | None
    prefill: list[tuple[str, int]]
    preempted: list[str]
    end_ns: int = 0

    def encode(self, anchor_ns: int) -> bytes:
        """Its span."""
        prefilled = sum([tokens for _, tokens in self.prefill])
        attributes: dict[str, Any] = {
            "tailtrace.engine_id": self.engine_id,
            "tailtrace.running": self.running,
            "tailtrace.waiting": self.waiting,
            "tailtrace.waiting_capacity": self.waiting - self.deferred,
            "tailtrace.waiting_deferred": self.deferred,
            "tailtrace.prefill_tokens": prefilled,
            "tailtrace.decode_tokens": self.tokens - prefilled,
        }
        if self.kv_usage is not None:
            attributes["tailtrace.kv_usage"] = self.kv_usage
        if self.prefill:
            listed = self.prefill[:_MAX_LISTED]
            attributes["tailtrace.prefill"] = ",".join([f"{name}:{tokens}" for name, tokens in listed])
        if self.preempted:
            attributes["tailtrace.preempted"] = ",".join(self.preempted[:_MAX_LISTED])
        start_unix_ns = self.start_ns + anchor_ns
        return encode_span_fields(
            span_identity(step_trace_id(self.engine_id, start_unix_ns), b""), ids.span_id(),
            start_unix_ns, self.end_ns + anchor_ns, span_head("step", INTERNAL) + span_attributes(attributes),
        )  # fmt: skip

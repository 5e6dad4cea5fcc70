"""Engine steps as an operator would keep them: a sample, each standing for the steps since the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tailtrace.instrumentation.otlp import INTERNAL, SpanData
from tailtrace.lab.clock import SECOND
from tailtrace.lab.service.engine import Stretch
from tailtrace.lab.telemetry.processes import Processes

MINUTE_NS = 60 * SECOND
RECENT_NS = 3600 * SECOND
RECENT_EVERY_NS = SECOND // 2
EARLIER_EVERY_NS = 20 * SECOND


class StepSampler:
    """Keeps steps with a prefill or preemption in the last hour; otherwise one in 0.5 s of it, and one in 20 s before.

    `tailtrace.sample_weight` says how many steps each stands for.
    """

    def __init__(self, start_unix_ns: int, length_ns: int, ids: Callable[[int], bytes]) -> None:
        self._start, self._recent_ns, self._ids = start_unix_ns, length_ns - RECENT_NS, ids
        self._kept: dict[tuple[str, int], list[tuple[Stretch, int]]] = {}
        self._last_ns: dict[tuple[str, int], int] = {}
        self._since: dict[tuple[str, int], int] = {}
        self._traces: dict[tuple[str, int], tuple[int, bytes]] = {}

    def record(self, service: str, replica: int, stretch: Stretch) -> None:
        key = (service, replica)
        recent = stretch.start_ns >= self._recent_ns
        weight = self._since.get(key, 0) + stretch.steps
        every = RECENT_EVERY_NS if recent else EARLIER_EVERY_NS
        batch = stretch.batch
        due = stretch.start_ns - self._last_ns.get(key, -every) >= every
        if due or (recent and (batch.prefill or batch.preempted)):
            self._kept.setdefault(key, []).append((stretch, weight))
            self._last_ns[key] = stretch.start_ns
            weight = 0
        self._since[key] = weight

    def take(self, processes: Processes) -> Iterator[tuple[tuple[str, int], list[SpanData]]]:
        """((service, replica), spans) of what was kept since the last call."""
        for key, kept in self._kept.items():
            yield key, [self._span(key, stretch, weight, processes) for stretch, weight in kept]
        self._kept.clear()

    def _span(self, key: tuple[str, int], stretch: Stretch, weight: int, processes: Processes) -> SpanData:
        batch = stretch.batch
        attributes: dict[str, Any] = {
            "tailtrace.engine_id": processes.engine(*key, stretch.start_ns)["tailtrace.engine_id"],
            "tailtrace.running": stretch.running,
            "tailtrace.waiting": stretch.waiting,
            "tailtrace.waiting_capacity": stretch.waiting_capacity,
            "tailtrace.waiting_deferred": 0,
            "tailtrace.prefill_tokens": batch.prefill_tokens,
            "tailtrace.decode_tokens": len(batch.decodes),
            "tailtrace.kv_usage": round(stretch.kv_usage, 4),
            "tailtrace.gpu_ns": int((stretch.step_ns - stretch.launch_ns) * 0.96),
            "tailtrace.sample_weight": weight,
        }
        if batch.prefill:
            attributes["tailtrace.prefill"] = ",".join(
                [f"chatcmpl-{s.request.number}:{tokens}" for s, tokens in batch.prefill]
            )
        if batch.preempted:
            attributes["tailtrace.preempted"] = ",".join([f"chatcmpl-{s.request.number}" for s in batch.preempted])
        start = self._start + stretch.start_ns
        minute, trace = self._traces.get(key, (-1, b""))
        if minute != start // MINUTE_NS:
            trace = self._ids(16)
            self._traces[key] = (start // MINUTE_NS, trace)
        return SpanData(trace, self._ids(8), b"", "step", INTERNAL, start, start + stretch.step_ns, attributes)

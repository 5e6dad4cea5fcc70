"""A finished request of the lab as the spans that the instrumentation of its gateway and its engine would send."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tailtrace.instrumentation.otlp import CLIENT, INTERNAL, SERVER, STATUS_ERROR, SpanData
from tailtrace.lab.constants import Constants
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Scenario
from tailtrace.lab.telemetry.journey import Interval, Journey

BYTES_PER_TOKEN_IN, BYTES_PER_TOKEN_OUT = 5, 190
MAX_STALLS = 8

_LOG_102 = math.log(1.02)
_EXTERNAL = {"http.request.method": "POST", "server.address": "vector-store"}


def gap_bins(gaps: dict[int, int]) -> str:
    """ "k:n,..." with k = ceil(log_1.02 nanoseconds), in order of k."""
    bins: dict[int, int] = defaultdict(int)
    for gap, count in gaps.items():
        bins[math.ceil(math.log(max(gap, 1)) / _LOG_102)] += count
    return ",".join([f"{k}:{bins[k]}" for k in sorted(bins)])


class SpanWriter:
    """Ids come from `ids(n)`, n random bytes."""

    def __init__(
        self, scenario: Scenario, constants: Constants, start_unix_ns: int, ids: Callable[[int], bytes]
    ) -> None:
        self._constants, self._start, self._ids = constants, start_unix_ns, ids
        self._sparse = scenario.evidence.spans == "sparse"
        self._services = {service.name: service for service in scenario.fleet.services}

    def write(self, request: Request) -> tuple[list[SpanData], list[SpanData]]:
        """(spans of the gateway, spans of the engine): the entry span first, then its stages in order of start."""
        r, base = request, self._start
        journey = Journey(r, self._constants)
        trace, root, call, server = self._ids(16), self._ids(8), self._ids(8), self._ids(8)
        route = "/v1/embeddings" if self._services[r.service].kind == "oneshot" else "/v1/chat/completions"
        common = self._common(r, self._ids(8).hex(), route)
        name, status = f"POST {route}", STATUS_ERROR if r.outcome == "error" else 0

        first = journey.gateway_first if r.streaming else -1
        attributes = {**common, "tailtrace.client_rtt_ns": r.client_rtt_ns, **token_times(r, first, r.arrival_ns)}
        if r.outcome == "ok":
            attributes["tailtrace.tokens_source"] = "usage"
        start, end = base + r.arrival_ns, base + journey.gateway_end
        gateway = [SpanData(trace, root, b"", name, SERVER, start, end, attributes, status)]
        gateway += self._stages(trace, root, journey.gateway, journey.gateway_end)
        if not journey.engine or r.engine_start_ns >= r.ended_ns:
            return gateway, []

        called = {"http.request.method": "POST", "server.address": r.service}
        start, end = base + r.dispatched_ns, base + journey.client_end
        gateway.append(SpanData(trace, call, root, f"POST {r.service}", CLIENT, start, end, called))
        attributes = {
            **common, "tailtrace.engine_request_id": f"chatcmpl-{r.number}",
            **token_times(r, journey.engine_first, r.engine_start_ns),
        }  # fmt: skip
        if r.outcome == "ok":
            attributes["tailtrace.tokens_source"] = "engine"
        start, end = base + r.engine_start_ns, base + journey.engine_end
        engine = [SpanData(trace, server, call, name, SERVER, start, end, attributes, status)]
        if self._sparse:
            return gateway, engine
        return gateway, engine + self._stages(trace, server, journey.engine, journey.engine_end)

    def _stages(self, trace: bytes, parent: bytes, stages: list[Interval], parent_end: int) -> list[SpanData]:
        """A span for each stage that began, cut at its parent's end."""
        base, spans = self._start, []
        for stage, start, end in stages:
            if start < parent_end:
                own = (self._ids(8), parent)
                times = (base + start, base + min(end, parent_end))
                if stage == "external":
                    spans.append(SpanData(trace, *own, "POST vector-store", CLIENT, *times, _EXTERNAL))
                else:
                    spans.append(SpanData(trace, *own, stage, INTERNAL, *times, _stage_attributes[stage]))
        return spans

    def _common(self, r: Request, request_id: str, route: str) -> dict[str, Any]:
        """What both entry spans say alike."""
        attributes: dict[str, Any] = {
            "tailtrace.request": True,
            "tailtrace.request_id": request_id,
            "tailtrace.outcome": r.outcome,
            "tailtrace.streaming": r.streaming,
            "tailtrace.route": route,
            "tailtrace.tenant": f"tenant-{r.tenant}",
            "gen_ai.request.model": self._services[r.service].model,
            "http.request.method": "POST",
            "http.request.body.size": r.input_tokens * BYTES_PER_TOKEN_IN,
            "http.response.status_code": 200 if r.outcome in ("ok", "cancelled") else r.refused or 502,
        }
        if r.outcome == "ok":
            attributes["gen_ai.usage.input_tokens"] = r.input_tokens
            if r.batched_ns < 0:
                attributes["gen_ai.usage.output_tokens"] = r.produced
            if r.cached_tokens:
                attributes["gen_ai.usage.cache_read.input_tokens"] = r.cached_tokens
            attributes["http.response.body.size"] = r.produced * BYTES_PER_TOKEN_OUT
        return attributes


def token_times(r: Request, first_ns: int, start_ns: int) -> dict[str, Any]:
    """First and last token, gaps and stalls as seen where the first token came at `first_ns` (-1: nowhere)."""
    if first_ns < 0:
        return {}
    attributes: dict[str, Any] = {"tailtrace.ttft_ns": first_ns - start_ns}
    shift = first_ns - r.first_token_ns - start_ns
    if r.outcome == "ok":
        attributes["tailtrace.last_token_ns"] = r.last_token_ns + shift
    if r.gaps:
        attributes["tailtrace.gaps"] = gap_bins(r.gaps)
    if r.stalls:
        longest = sorted(sorted(r.stalls, key=lambda stall: -stall[1])[:MAX_STALLS])
        attributes["tailtrace.stalls"] = ",".join([f"{start + shift}:{length}" for start, length in longest])
    return attributes


class _StageAttributes(dict[str, dict[str, Any]]):
    """One attribute set for each stage, shared by all its spans."""

    def __missing__(self, stage: str) -> dict[str, Any]:
        made = self[stage] = {"tailtrace.stage": stage}
        return made


_stage_attributes = _StageAttributes()

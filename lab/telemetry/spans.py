"""A finished request of the lab as the spans that the instrumentation of its gateway and its engine would send."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tailtrace.instrumentation.otlp import (
    CLIENT,
    INTERNAL,
    SERVER,
    STATUS_ERROR,
    encode_attributes,
    encode_span_fields,
    encode_status,
    span_head,
)  # fmt: skip
from tailtrace.lab.clock import MILLISECOND
from tailtrace.lab.constants import Constants
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Scenario

_LOG_102 = math.log(1.02)
BYTES_PER_TOKEN_IN, BYTES_PER_TOKEN_OUT = 5, 190

# (stage, start, end)
Interval = tuple[str, int, int]


def _rest(name: str, kind: int, attributes: dict[str, Any]) -> bytes:
    return span_head(name, kind) + encode_attributes(attributes)


class _Stages(dict[str, bytes]):
    def __missing__(self, stage: str) -> bytes:
        rest = self[stage] = _rest(stage, INTERNAL, {"tailtrace.stage": stage})
        return rest


STAGE_REST = _Stages()


def gap_bins(gaps: dict[int, int]) -> str:
    """ "k:n,..." with k = ceil(log_1.02 nanoseconds), in order of k."""
    bins: dict[int, int] = {}
    for gap, count in gaps.items():
        k = math.ceil(math.log(max(gap, 1)) / _LOG_102)
        bins[k] = bins.get(k, 0) + count
    return ",".join([f"{k}:{bins[k]}" for k in sorted(bins)])


class Journey:
    """The times of a request that ended, from its marks: stages of the gateway, stages of the engine, and both ends."""

    __slots__ = ("client_end", "engine", "engine_end", "engine_first", "gateway", "gateway_end", "gateway_first")

    def __init__(self, request: Request, c: Constants) -> None:
        r, spread = request, request.spread * MILLISECOND
        ended = r.ended_ns
        at = r.arrival_ns + r.net_in_ns
        authed = at + r.auth_ns
        limited = authed + r.rate_limit_ns
        self.gateway: list[Interval] = [("net_in", r.arrival_ns, at), ("auth", at, authed)]
        if r.refused != 401:
            self.gateway.append(("rate_limit", authed, limited))
        if r.external_ns and not r.refused:
            self.gateway.append(("external", limited, limited + r.external_ns))
        self.engine: list[Interval] = []
        self.engine_first = self.gateway_first = -1
        self.engine_end = self.client_end = self.gateway_end = ended
        if r.dispatched_ns < 0:
            return
        routed = r.routed_ns + r.route_ns
        self.gateway += [("route", r.routed_ns, routed), ("dispatch", routed, r.dispatched_ns)]
        engine = self.engine = [
            ("parse", r.engine_start_ns, r.parsed_ns),
            ("template", r.template_start_ns, r.templated_ns),
            ("tokenize", r.templated_ns, r.tokenized_ns),
            ("engine_submit", r.tokenized_ns, r.submitted_ns if r.submitted_ns >= 0 else ended),
        ]
        last, first = r.last_token_ns, r.first_token_ns
        if r.submitted_ns >= 0:
            engine.append(("queue", r.submitted_ns, r.scheduled_ns if r.scheduled_ns >= 0 else ended))
        if r.scheduled_ns >= 0:
            if r.batched_ns >= 0:
                engine += [
                    ("batch_wait", r.scheduled_ns, r.batched_ns),
                    ("forward", r.batched_ns, last if last >= 0 else ended),
                ]
            elif first < 0:
                engine.append(("prefill", r.scheduled_ns, ended))
            else:
                engine += [("prefill", r.scheduled_ns, first), ("decode", first, last if r.outcome == "ok" else ended)]
            engine += [("preempted", start, end) for start, end in r.preemptions]
        back = int((c.engine_return + c.detokenize) * spread)
        if first >= 0:
            self.engine_first = first + back
            self.gateway_first = self.engine_first + r.network_ns
        if r.outcome != "ok":
            if self.gateway_first >= 0 and r.streaming and self.gateway_first < ended:
                self.gateway.append(("stream_out", self.gateway_first, ended))
            if self.engine_first >= ended:
                self.engine_first = -1
            if self.gateway_first >= ended:
                self.gateway_first = -1
            return
        returned = last + int(c.engine_return * spread)
        written = last + back + int(c.write * spread)
        engine += [("engine_return", last, returned), ("detokenize", returned, last + back)]
        engine.append(("stream_out", self.engine_first if r.streaming and first >= 0 else last + back, written))
        self.engine_end = ended
        self.client_end = self.engine_end + r.network_ns
        out = self.gateway_first if r.streaming and first >= 0 else self.client_end
        # A client takes its tokens no faster than it reads; an unstreamed body goes in a few packets.
        taken = out + r.token_interval_ns * (r.produced if r.streaming else r.produced // 20)
        sent = max(self.client_end, taken) + int(c.write * spread)
        self.gateway.append(("stream_out", out, sent))
        self.gateway_end = sent + int(c.handler * spread)


class SpanWriter:
    """Writes the spans of requests as encoded fields of ScopeSpans; ids come from `ids(n)`, n random bytes."""

    def __init__(
        self, scenario: Scenario, constants: Constants, start_unix_ns: int, ids: Callable[[int], bytes]
    ) -> None:
        self._constants, self._start, self._ids = constants, start_unix_ns, ids
        self._services = {service.name: service for service in scenario.fleet.services}

    def write(self, request: Request) -> tuple[list[bytes], list[bytes]]:
        """(spans of the gateway, spans of the engine), each in order of start after its entry span."""
        r, base = request, self._start
        journey = Journey(r, self._constants)
        ids = self._ids(16 + 8 * (4 + len(journey.gateway) + len(journey.engine)))
        trace, root, client, server = ids[:16], ids[16:24], ids[24:32], ids[32:40]
        at = 48
        request_id = ids[40:48].hex()
        route = "/v1/embeddings" if self._services[r.service].kind == "oneshot" else "/v1/chat/completions"
        common = self._common(r, request_id, route)
        reached = bool(journey.engine) and r.engine_start_ns < r.ended_ns
        first = journey.gateway_first if r.streaming else -1
        entry = self._entry(r, journey, common, route, first, r.arrival_ns, True)
        gateway = [encode_span_fields(trace, root, b"", base + r.arrival_ns, base + journey.gateway_end, entry)]
        for stage, start, end in journey.gateway:
            if start < journey.gateway_end:
                rest = _EXTERNAL if stage == "external" else STAGE_REST[stage]
                end = min(end, journey.gateway_end)
                gateway.append(encode_span_fields(trace, ids[at : at + 8], root, base + start, base + end, rest))
                at += 8
        engine: list[bytes] = []
        if reached:
            call = _rest(f"POST {r.service}", CLIENT, {"http.request.method": "POST", "server.address": r.service})
            gateway.append(
                encode_span_fields(trace, client, root, base + r.dispatched_ns, base + journey.client_end, call)
            )
            entry = self._entry(r, journey, common, route, journey.engine_first, r.engine_start_ns, False)
            engine.append(
                encode_span_fields(trace, server, client, base + r.engine_start_ns, base + journey.engine_end, entry)
            )
            for stage, start, end in journey.engine:
                if start < journey.engine_end:
                    end = min(end, journey.engine_end)
                    engine.append(
                        encode_span_fields(trace, ids[at : at + 8], server, base + start, base + end, STAGE_REST[stage])
                    )
                    at += 8
        return gateway, engine

    def _common(self, r: Request, request_id: str, route: str) -> bytes:
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
        }
        if r.outcome == "ok":
            attributes["gen_ai.usage.input_tokens"] = r.input_tokens
            if r.batched_ns < 0:
                attributes["gen_ai.usage.output_tokens"] = r.produced
            if r.cached_tokens:
                attributes["gen_ai.usage.cache_read.input_tokens"] = r.cached_tokens
            attributes["http.response.body.size"] = r.produced * BYTES_PER_TOKEN_OUT
        return encode_attributes(attributes)

    def _entry(
        self, r: Request, journey: Journey, common: bytes, route: str, first_ns: int, start_ns: int, gateway: bool
    ) -> bytes:
        own: dict[str, Any] = {
            "http.response.status_code": 200 if r.outcome in ("ok", "cancelled") else r.refused or 502
        }
        if gateway:
            own["tailtrace.client_rtt_ns"] = r.client_rtt_ns
        else:
            own["tailtrace.engine_request_id"] = f"chatcmpl-{r.number}"
        if r.outcome == "ok":
            own["tailtrace.tokens_source"] = "usage" if gateway else "engine"
        if first_ns >= 0:
            own["tailtrace.ttft_ns"] = first_ns - start_ns
            if r.outcome == "ok":
                own["tailtrace.last_token_ns"] = first_ns - start_ns + r.last_token_ns - r.first_token_ns
            if r.gaps:
                own["tailtrace.gaps"] = gap_bins(r.gaps)
            if r.stalls:
                longest = sorted(sorted(r.stalls, key=lambda stall: -stall[1])[:8])
                shift = first_ns - r.first_token_ns - start_ns
                own["tailtrace.stalls"] = ",".join([f"{start + shift}:{length}" for start, length in longest])
        status = encode_status(STATUS_ERROR, "replica lost") if r.outcome == "error" else b""
        return span_head(f"POST {route}", SERVER) + common + encode_attributes(own) + status


_EXTERNAL = _rest("POST vector-store", CLIENT, {"http.request.method": "POST", "server.address": "vector-store"})

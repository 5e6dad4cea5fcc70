"""The spans that every load generator sends: traces of ten spans through a gateway and an engine, 240 bytes a span.

A body is encoded once, as a template; each new one is the template with fresh ids, request ids and times patched in
place, so that one process makes millions of spans a second and the generator is never what is measured.

    python bench/payload.py [--seed N] [--quick]      prints how fast it is and how large a span
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import arguments, report
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailtrace.ingest.receiver.checks.wire import fields

SPANS_PER_TRACE = 10
REQUEST_NS = 1_200_000_000
"""Length of a request before it is scaled; the scale is lognormal with a median of 1."""

_GATEWAY, _ENGINE = 0, 1
# service, parent, name, kind, stage, start and end as parts of the request
_SPANS = (
    (_GATEWAY, None, "POST /v1/chat/completions", Span.SPAN_KIND_SERVER, "", 0.0, 1.0),
    (_GATEWAY, 0, "gateway.auth", Span.SPAN_KIND_INTERNAL, "auth", 0.001, 0.012),
    (_GATEWAY, 0, "gateway.rate_limit", Span.SPAN_KIND_INTERNAL, "rate_limit", 0.012, 0.014),
    (_GATEWAY, 0, "gateway.route", Span.SPAN_KIND_INTERNAL, "route", 0.014, 0.016),
    (_GATEWAY, 0, "POST", Span.SPAN_KIND_CLIENT, "", 0.016, 0.99),
    (_ENGINE, 4, "llm_request", Span.SPAN_KIND_SERVER, "", 0.02, 0.985),
    (_ENGINE, 5, "tokenizer.encode", Span.SPAN_KIND_INTERNAL, "tokenize", 0.022, 0.04),
    (_ENGINE, 5, "scheduler.queue", Span.SPAN_KIND_INTERNAL, "queue", 0.04, 0.31),
    (_ENGINE, 5, "model.prefill", Span.SPAN_KIND_INTERNAL, "prefill", 0.31, 0.42),
    (_ENGINE, 5, "model.decode", Span.SPAN_KIND_INTERNAL, "decode", 0.42, 0.975),
)

_RESOURCES: tuple[dict[str, str | int], ...] = (
    {"service.name": "gateway", "service.version": "2026.7.1",
     "service.instance.id": "a3f0c2d4-7b1e-4d58-9c66-2f1e0b7d9a10",
     "host.name": "gw-1", "process.pid": 4211, "tailtrace.role": "gateway"},
    {"service.name": "vllm", "service.version": "0.11.0",
     "service.instance.id": "5c9e7a52-0d34-47f1-8f3b-6a1b2c3d4e5f",
     "host.name": "gpu-7", "process.pid": 917, "tailtrace.role": "api_server", "tailtrace.engine": "vllm",
     "tailtrace.model": "meta-llama/Llama-3.1-8B-Instruct", "tailtrace.precision": "bf16", "tailtrace.tp": 1},
)  # fmt: skip


class BodyFactory:
    """Endless OTLP trace bodies. The same seed and times give the same bytes."""

    def __init__(self, seed: int = 1, traces_per_body: int = 50) -> None:
        self.traces_per_body = traces_per_body
        self.spans_per_body = traces_per_body * SPANS_PER_TRACE
        self._rng = np.random.default_rng(seed)
        template = _template(traces_per_body)
        self._template = np.frombuffer(template, np.uint8)
        places = _Places(template)
        shape = (traces_per_body, SPANS_PER_TRACE)
        self._trace_ids = _spread(places.trace_ids, 16).reshape(*shape, 16)
        self._span_ids = _spread(places.span_ids, 8)
        self._parents = _spread(places.parents, 8)
        parents = [parent for _, parent, *_ in _SPANS if parent is not None]
        self._parent_of = (np.arange(traces_per_body)[:, None] * SPANS_PER_TRACE + parents).ravel()
        self._starts = _spread(places.starts, 8)
        self._ends = _spread(places.ends, 8)
        self._request_ids = _spread(places.request_ids, 16).reshape(traces_per_body, -1, 16)
        self._start_share = np.array([start for *_, start, _ in _SPANS])
        self._end_share = np.array([end for *_, end in _SPANS])

    def body(self, now_ns: int) -> bytes:
        """The next body; its requests ended within the second before `now_ns`."""
        rng, traces = self._rng, self.traces_per_body
        data = self._template.copy()
        # Never all zeros: the lowest bit of each half is set.
        trace_ids = _random(rng, traces * 2).view(np.uint8).reshape(traces, 1, 16)
        span_ids = _random(rng, self.spans_per_body).view(np.uint8).reshape(-1, 8)
        data[self._trace_ids] = trace_ids
        data[self._span_ids] = span_ids
        data[self._parents] = span_ids[self._parent_of]
        length = (REQUEST_NS * rng.lognormal(0.0, 0.5, (traces, 1))).astype(np.int64)
        start = now_ns - rng.integers(0, 1_000_000_000, (traces, 1)) - length
        data[self._starts] = _bytes_of(start + (length * self._start_share).astype(np.int64))
        data[self._ends] = _bytes_of(start + (length * self._end_share).astype(np.int64))
        digits = rng.integers(0, 16, (traces, 1, 16), np.uint8)
        data[self._request_ids] = np.where(digits < 10, digits + ord("0"), digits + (ord("a") - 10))
        return data.tobytes()


def _random(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint64]:
    return rng.integers(0, 2**64, count, np.uint64) | np.uint64(1)


def _bytes_of(times: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    return times.astype("<i8").ravel().view(np.uint8).reshape(-1, 8)


def _spread(offsets: list[int], length: int) -> npt.NDArray[np.int64]:
    """Indexes of `length` bytes from each offset on."""
    return np.array(offsets, np.int64)[:, None] + np.arange(length)


class _Places:
    """Where in a template the parts to patch lie, span by span in the order of the traces."""

    def __init__(self, template: bytes) -> None:
        self.trace_ids: list[int] = []
        self.span_ids: list[int] = []
        self.parents: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.request_ids: list[int] = []
        found: list[tuple[int, int, int, int]] = []
        for _, _, _, low, high in fields(template, 0, len(template)):
            for number, _, _, scope_low, scope_high in fields(template, low, high):
                if number == 2:
                    for inner, _, _, start, stop in fields(template, scope_low, scope_high):
                        if inner == 2:
                            # The template's span id holds the number of its trace and its place in it.
                            name = next(at for n, _, _, at, _ in fields(template, start, stop) if n == 2)
                            trace, position = template[name + 4 : name + 8], template[name : name + 4]
                            found.append((int.from_bytes(trace), int.from_bytes(position), start, stop))
        for _, _, start, stop in sorted(found):
            self._span(template, start, stop)

    def _span(self, template: bytes, start: int, stop: int) -> None:
        lists = {1: self.trace_ids, 2: self.span_ids, 4: self.parents, 7: self.starts, 8: self.ends}
        for number, _, _, low, high in fields(template, start, stop):
            if number in lists:
                lists[number].append(low)
            elif number == 9 and template[high - 16 : high] == b"0" * 16:
                self.request_ids.append(high - 16)


def _template(traces: int) -> bytes:
    request = ExportTraceServiceRequest()
    scopes = []
    for resource in _RESOURCES:
        resource_spans = request.resource_spans.add()
        _set(resource_spans.resource, resource)
        scope = resource_spans.scope_spans.add()
        scope.scope.name = "tailtrace"
        scopes.append(scope)
    for trace in range(traces):
        rng = np.random.default_rng(trace)
        for position, (service, parent, name, kind, stage, _, _) in enumerate(_SPANS):
            span = scopes[service].spans.add(
                trace_id=b"\1" * 16, span_id=position.to_bytes(4) + trace.to_bytes(4), name=name, kind=kind,
                start_time_unix_nano=1, end_time_unix_nano=1,
            )  # fmt: skip
            if parent is not None:
                span.parent_span_id = b"\1" * 8
            _set(span, _attributes(position, stage, rng))
    return request.SerializeToString()


def _attributes(position: int, stage: str, rng: np.random.Generator) -> dict[str, str | int | bool]:
    """What a span of this place carries: heavy at the two entry spans, light on stages, as services do."""
    prompt, output = int(rng.integers(64, 4096)), int(rng.integers(16, 1024))
    if position == 0:
        return {
            "tailtrace.request": True, "http.request.method": "POST", "http.route": "/v1/chat/completions",
            "http.response.status_code": 200, "tailtrace.outcome": "ok", "tailtrace.streaming": True,
            "tailtrace.ttft_ns": int(rng.integers(100_000_000, 900_000_000)), "gen_ai.request.model": "llama-3.1-8b",
            "gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": output,
            "tailtrace.tenant": f"team-{rng.integers(0, 40)}", "tailtrace.request_id": "0" * 16,
        }  # fmt: skip
    if position == 4:
        return {
            "http.request.method": "POST", "server.address": "vllm.internal", "server.port": 8000,
            "url.full": "http://vllm.internal:8000/v1/chat/completions", "http.response.status_code": 200,
        }  # fmt: skip
    if position == 5:
        return {
            "gen_ai.request.id": "cmpl-" + "0" * 16, "gen_ai.request.max_tokens": 1024,
            "gen_ai.request.temperature": "0.7",
            "gen_ai.usage.prompt_tokens": prompt, "gen_ai.usage.completion_tokens": output,
            "gen_ai.response.model": "meta-llama/Llama-3.1-8B-Instruct", "tailtrace.engine_request_id": "0" * 16,
        }  # fmt: skip
    attributes: dict[str, str | int | bool] = {"tailtrace.stage": stage, "tailtrace.request_id": "0" * 16}
    if stage in ("prefill", "decode"):
        attributes |= {
            "tailtrace.tokens": prompt if stage == "prefill" else output,
            "tailtrace.batch_size": int(rng.integers(1, 64)),
        }
    else:
        attributes |= {"thread.name": "asyncio_0"}
    return attributes


def _set(target: Span | Resource, attributes: dict[str, Any]) -> None:
    for key, value in attributes.items():
        into = target.attributes.add(key=key).value
        if isinstance(value, bool):
            into.bool_value = value
        elif isinstance(value, int):
            into.int_value = value
        else:
            into.string_value = value


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    factory = BodyFactory(seed=options.seed)
    seconds = 0.5 if options.quick else 5.0
    bodies = size = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        size += len(factory.body(time.time_ns()))
        bodies += 1
    elapsed = time.perf_counter() - started
    spans = bodies * factory.spans_per_body
    print(f"{spans / elapsed:,.0f} spans/s from one process, {size / spans:.1f} bytes a span")
    report("payload", options.seed, {"spans_per_s": spans / elapsed, "bytes_per_span": size / spans})


if __name__ == "__main__":
    main()

"""One lane of bench/overhead.py, run in a process of its own: one request = 9 spans with 3 attributes and 200 chunks.

    python overhead_lanes.py LANE PORT REQUESTS PAUSE_US

Prints one JSON object: CPU microseconds a request with all background threads, until everything is sent, and of those
threads alone; the in-line median and P99; milliseconds to import. Every lane computes the first token and the
distribution of the gaps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from operator import sub
from typing import Any

NAMES = ("auth", "tokenize", "queue", "batch_wait", "prefill", "decode", "detokenize", "postprocess")
CHUNKS = 200


def chunk_statistics(start: int) -> dict[str, Any]:
    """The chunks, and what a user of a plain tracer would keep of their times."""
    clock = time.perf_counter_ns
    times: list[int] = []
    append = times.append
    for _ in range(CHUNKS):
        append(clock())
    gaps = sorted(map(sub, times[1:], times))
    return {
        "ttft_ns": times[0] - start,
        "gap_p50_ns": gaps[len(gaps) // 2],
        "gap_p99_ns": gaps[len(gaps) * 99 // 100],
        "gap_max_ns": gaps[-1],
    }


def floor(port: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """No tracer: clock reads into a list and the statistics."""
    clock = time.perf_counter_ns

    def one() -> None:
        start = clock()
        for _ in NAMES:
            clock()
            clock()
        chunk_statistics(start)

    return one, lambda: None


def tailtrace(port: int) -> tuple[Callable[[], None], Callable[[], None]]:
    from tailtrace.instrumentation import flush, instrument, request, stage

    instrument("bench", endpoint=f"http://127.0.0.1:{port}")

    def one() -> None:
        with request("chat", model="m-7b", tenant="a") as record:
            for name in NAMES:
                with stage(name, model="m-7b", tokens=512):
                    pass
            token = record.token_marker()
            for _ in range(CHUNKS - 1):
                token()

    return one, lambda: flush(30) and None


def otel_http(port: int) -> tuple[Callable[[], None], Callable[[], None]]:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return _otel(OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces"))


def otel_grpc(port: int) -> tuple[Callable[[], None], Callable[[], None]]:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return _otel(OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True))


def _otel(exporter: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    # A queue that holds all of them: dropped spans would cost nothing.
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 20))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("bench")
    clock = time.perf_counter_ns

    def one() -> None:
        start = clock()
        with tracer.start_as_current_span("chat", attributes={"model": "m-7b", "tenant": "a"}) as span:
            for name in NAMES:
                attributes = {"stage": name, "model": "m-7b", "tokens": 512}
                with tracer.start_as_current_span(name, attributes=attributes):
                    pass
            span.set_attributes(chunk_statistics(start))

    return one, lambda: provider.force_flush(60_000) and None


def ddtrace(port: int) -> tuple[Callable[[], None], Callable[[], None]]:
    import os

    os.environ["DD_TRACE_AGENT_URL"] = f"http://127.0.0.1:{port}"
    os.environ["DD_INSTRUMENTATION_TELEMETRY_ENABLED"] = "false"
    os.environ["DD_REMOTE_CONFIGURATION_ENABLED"] = "false"
    from ddtrace.trace import tracer

    clock = time.perf_counter_ns

    def one() -> None:
        start = clock()
        with tracer.trace("chat", service="bench") as span:
            span.set_tag("model", "m-7b")
            span.set_tag("tenant", "a")
            for name in NAMES:
                with tracer.trace(name) as child:
                    child.set_tag("stage", name)
                    child.set_tag("model", "m-7b")
                    child.set_tag("tokens", 512)
            for key, value in chunk_statistics(start).items():
                span.set_tag(key, value)

    return one, tracer.flush


def logfire(port: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """As its users send to a receiver of their own: over OTLP/HTTP."""
    import logfire
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces")
    processor = BatchSpanProcessor(exporter, max_queue_size=1 << 20)
    logfire.configure(
        send_to_logfire=False,
        console=False,
        additional_span_processors=[processor],
        metrics=False,
        inspect_arguments=False,
    )
    clock = time.perf_counter_ns

    def one() -> None:
        start = clock()
        with logfire.span("chat", model="m-7b", tenant="a") as span:
            for name in NAMES:
                with logfire.span(name, stage=name, model="m-7b", tokens=512):
                    pass
            span.set_attributes(chunk_statistics(start))

    return one, lambda: logfire.force_flush(60_000) and None


LANES = {
    "floor": floor, "tailtrace": tailtrace, "otel_http": otel_http, "otel_grpc": otel_grpc, "ddtrace": ddtrace,
    "logfire": logfire,
}  # fmt: skip


def main() -> None:
    lane, port, requests, pause_us = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    started = time.perf_counter()
    one, flush = LANES[lane](port)
    import_ms = (time.perf_counter() - started) * 1000
    for _ in range(200):
        one()
    flush()
    inline: list[int] = []
    cpu, own = time.process_time_ns(), time.thread_time_ns()
    for _ in range(requests):
        begin = time.perf_counter_ns()
        one()
        inline.append(time.perf_counter_ns() - begin)
        if pause_us:
            time.sleep(pause_us / 1e6)
    own = time.thread_time_ns() - own
    flush()
    cpu = time.process_time_ns() - cpu
    inline.sort()
    result = {
        "cpu_us": cpu / requests / 1000,
        "threads_us": (cpu - own) / requests / 1000,
        "inline_us": inline[requests // 2] / 1000,
        "inline_p99_us": inline[requests * 99 // 100] / 1000,
        "import_ms": import_ms,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

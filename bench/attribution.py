"""Judging speed per core, from the store and back: traces of 10 spans, half with vLLM's own spans, and traces of 45.

Spans are put straight into the jobs' inbox; then the `requests` job runs on one core until all are judged. Reading,
judging, and writing rows with all their rollups are counted, on whatever thread they run.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import arguments, report, workspace

from tailtrace.analytics import warm_up
from tailtrace.analytics.jobs.requests import run_requests
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store

BATCH_SPANS = 40_000
SPANS_PER_S = 100_000
SERVICES = ("gateway", "chat", "embedder", "vllm")
STAGES = ("auth", "tokenize", "queue", "prefill", "decode", "detokenize", "stream_out", "route", "template")


def batch(rng: np.random.Generator, traces: int, spans: int, engine_share: float, end_ms: int) -> pa.Table:
    """Rows of the inbox: one gateway request a trace, its stages below, and in a share of traces an engine's."""
    n = traces * spans
    position = np.tile(np.arange(spans), traces)
    base = np.repeat(np.arange(traces) * spans, spans)
    ids = rng.integers(1, 1 << 63, n).astype(np.uint64)
    up = base + np.where(position < spans // 2, 0, position // 2)
    start = end_ms * 1_000_000 - 3_000_000_000 + np.repeat(rng.integers(0, 1_000_000_000, traces), spans)
    duration = np.repeat(rng.lognormal(20, 0.5, traces).astype(np.int64) + 1_000_000, spans)
    offset = (duration * position / (spans + 1)).astype(np.int64)
    engine = (position == spans - 1) & np.repeat(rng.random(traces) < engine_share, spans)
    root = position == 0
    length = np.where(root, duration, np.where(engine, duration - offset, duration // (spans // 2)))
    stage = np.where(root | engine, "", np.array(STAGES)[position % len(STAGES)])
    if engine_share:
        stage = np.where(np.isin(stage, ("queue", "prefill", "decode")), "app", stage)
    attributes: list[list[tuple[str, str]]] = [[] for _ in range(n)]
    for k in np.flatnonzero(root):
        ttft = int(duration[k] // 4)
        attributes[k] = [
            ("tailtrace.request", "true"),
            ("tailtrace.ttft_ns", str(ttft)),
            ("tailtrace.last_token_ns", str(int(duration[k]) - 1000)),
            ("tailtrace.outcome", "ok"),
            ("tailtrace.streaming", "true"),
            ("tailtrace.route", "/v1/chat/completions"),
            ("gen_ai.request.model", "llama-3-8b"),
            ("gen_ai.usage.input_tokens", "512"),
            ("gen_ai.usage.output_tokens", "128"),
            ("tailtrace.request_id", f"req-{k}"),
            ("tailtrace.gaps", "900:100,910:28"),
            ("tailtrace.tenant", f"tenant-{k % 20}"),
        ]
    for k in np.flatnonzero(engine):
        seconds = int(length[k]) / 1e9
        attributes[k] = [
            ("gen_ai.latency.time_to_first_token", str(0.3 * seconds)),
            ("gen_ai.latency.e2e", str(seconds)),
            ("gen_ai.latency.time_in_queue", str(0.1 * seconds)),
            ("gen_ai.latency.time_in_model_prefill", str(0.15 * seconds)),
            ("gen_ai.latency.time_in_model_decode", str(0.65 * seconds)),
            ("gen_ai.usage.prompt_tokens", "512"),
            ("gen_ai.usage.completion_tokens", "128"),
            ("gen_ai.request.id", f"cmpl-{k}-0"),
        ]
    trace = np.repeat(rng.integers(0, 256, (traces, 16), dtype=np.uint8), spans, axis=0)
    service = np.array(SERVICES)[np.where(engine, 3, np.where(position % 4 == 3, 1, 0))]
    return pa.table(
        {
            "Received": pa.array(np.full(n, end_ms), pa.timestamp("ms", "UTC")),
            "TraceId": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, pa.py_buffer(trace.tobytes())]),
            "SpanId": ids,
            "ParentSpanId": np.where(root, np.uint64(0), ids[up]),
            "StartNs": start + offset,
            "DurationNs": length.astype(np.uint64),
            "ClockFault": np.zeros(n, np.bool_),
            "Kind": np.where(root | engine, "Server", "Internal"),
            "Service": np.where(root | engine, service, "gateway"),
            "Name": np.where(root, "POST /v1/chat/completions", np.where(engine, "llm_request", stage)),
            "Scope": np.where(engine, "vllm.tracing.otel", "tailtrace"),
            "Status": np.full(n, "Unset"),
            "Stage": np.where(stage == "app", "", stage),
            "Blocking": np.ones(n, np.bool_),
            "Resource": np.where(engine, np.uint64(11), np.uint64(7)),
            "HasAttributes": root | engine,
            "Attributes": pa.array(attributes, pa.map_(pa.string(), pa.string())),
        }
    )


def judged_per_second(store: Store, seed: int, traces: int, spans: int, engine_share: float) -> float:
    """Traces judged per second of one core's time."""
    for table in ("span_inbox", "requests", "watermarks"):
        store.command(f"TRUNCATE TABLE {table}")
    rng = np.random.default_rng(seed)
    now_ms = int(time.time() * 1000)
    step = BATCH_SPANS // spans
    for k in range(0, traces, step):
        came_ms = now_ms - 60_000 - (traces - k) * spans * 1000 // SPANS_PER_S
        store.insert_arrow("span_inbox", batch(rng, min(step, traces - k), spans, engine_share, came_ms))
    began = time.process_time()
    clock = time.perf_counter()
    rows = 0
    while True:
        done = run_requests(store, now_ms=now_ms)
        rows += done.rows
        if not done.behind:
            break
    cpu, wall = time.process_time() - began, time.perf_counter() - clock
    if rows < traces:
        raise RuntimeError(f"{rows} rows from {traces} traces")
    print(
        f"  {traces:,} traces of {spans} spans, {engine_share:.0%} with an engine's span: {wall:.2f} s, CPU {cpu:.2f} s"
    )
    return traces / cpu


def main() -> None:
    parser = arguments(__doc__ or "")
    options = parser.parse_args()
    scale = 0.1 if options.quick else 1.0
    with workspace(options.work) as folder:
        store = open_store(ServerSettings(data=Path(folder) / "attribution"))
        warm_up()
        judged_per_second(store, options.seed, 2_000, 10, 0.5)
        plain = judged_per_second(store, options.seed, int(200_000 * scale), 10, 0.0)
        mixed = judged_per_second(store, options.seed, int(100_000 * scale), 10, 0.5)
        long = judged_per_second(store, options.seed, int(40_000 * scale), 45, 0.0)
        store.close()
    report(
        "attribution",
        options.seed,
        {"traces_per_s_10": plain, "traces_per_s_10_half_engine": mixed, "spans_per_s_45": long * 45},
    )


if __name__ == "__main__":
    main()

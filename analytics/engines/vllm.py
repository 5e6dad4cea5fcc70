"""vLLM: one `llm_request` span per sample (V0 up to 0.10, V1 from 0.10.2 on), and spans of its start-up from 0.16 on.

| version | what the span tells |
|---|---|
| V0, up to 0.10 | time in queue counted from arrival, time to first token, e2e; no prefill, no decode |
| V1, 0.10.2 on | time in queue, in prefill, in decode of the engine core; time to first token, e2e of the front end |
| with the child spans of pull request 44402 | `vllm_queue`, `vllm_prefill`, ... are measured; nothing is derived |

The span runs from the request's arrival at the renderer to the processing of its last output. Its stage times are
differences of the engine core's monotonic clock, in seconds; they are placed by the front end's time to first token.
What is left between arrival and queue (template, tokenizer, hand-over) has no marks here and stays unexplained.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tailtrace.analytics.engines.engine import Engine, Floats, Int64s, Interval, Mask, Reading, RequestSpans

# Child spans that a pull request proposes; `vllm_step_execution` is a step of the whole batch, no stage of a request.
_CHILDREN: Final = {
    "vllm_queue": "queue",
    "vllm_async_kv_transfer": "kv_transfer",
    "vllm_prefill": "prefill",
    "vllm_decode": "decode",
}
_STARTUP: Final = {
    "Download weights - HF": "weights_download",
    "Load weights": "model_load",
    "Load model": "model_load",
    "Initialize model": "model_load",
    "Compile graph": "compile",
    "Inductor compilation": "compile",
    "Dynamo bytecode transform": "compile",
    "Capture model": "graph_capture",
    "Allocate KV cache": "kv_alloc",
    "Warmup (GPU)": "warmup",
    "Warmup (CPU)": "warmup",
    "DeepGemm warmup": "warmup",
    "CuTeDSL warmup": "warmup",
    "MiniMax MSA warmup": "warmup",
    "API server setup": "engine_init",
    "Overall Loading": "engine_init",
    "SyncMPClient init": "engine_init",
    "AsyncMPClient init": "engine_init",
    "EngineCoreProc init": "engine_init",
    "Prepare model": "engine_init",
    "Executor init": "engine_init",
    "Worker init": "engine_init",
    "Init device": "engine_init",
    "Loading (GPU)": "engine_init",
    "Loading (CPU)": "engine_init",
}


def _ns(seconds: Floats) -> tuple[Int64s, Mask]:
    """Nanoseconds (0 where unknown or negative) and whether a value was there."""
    known = np.isfinite(seconds) & (np.abs(seconds) < 1e9)
    values = np.where(known, seconds, 0.0)
    return np.maximum(np.rint(values * 1e9), 0).astype(np.int64), known


def read(spans: RequestSpans) -> Reading:
    """queue, prefill and decode around the first token, clipped to the span; negative times count as zero."""
    starts, ends = spans.starts, spans.ends
    seconds = {
        "ttft": spans.number("gen_ai.latency.time_to_first_token"),
        "queue": spans.number("gen_ai.latency.time_in_queue"),
        "prefill": spans.number("gen_ai.latency.time_in_model_prefill"),
        "decode": spans.number("gen_ai.latency.time_in_model_decode"),
    }
    ttft, placed = _ns(seconds["ttft"])
    queue, has_queue = _ns(seconds["queue"])
    prefill, has_prefill = _ns(seconds["prefill"])
    decode, has_decode = _ns(seconds["decode"])
    first = np.minimum(starts + ttft, ends)
    scheduled = np.maximum(first - prefill, starts)
    queued = np.maximum(scheduled - queue, starts)
    last = np.minimum(first + decode, ends)
    negative = np.zeros(len(starts), np.bool_)
    for values in seconds.values():
        negative |= values < 0
    clipped = placed & ((starts + ttft > ends) | (first + decode > ends) | (first - prefill - queue < starts))
    # V0 states no prefill; its queue begins at arrival, its last token is the end that it states.
    old = placed & has_queue & ~has_prefill & ~has_decode
    if old.any():
        e2e, has_e2e = _ns(spans.number("gen_ai.latency.e2e"))
        queued, scheduled = np.where(old, starts, queued), np.where(old, np.minimum(starts + queue, first), scheduled)
        last = np.where(old & has_e2e, np.clip(starts + e2e, first, ends), last)
        has_decode = has_decode | (old & has_e2e)
        clipped &= ~old
    return Reading(
        intervals=(
            Interval("queue", queued, scheduled, placed & has_queue & (has_prefill | old)),
            Interval("prefill", scheduled, first, placed & (has_prefill | old)),
            Interval("decode", first, last, placed & has_decode),
        ),
        ttft_ns=np.where(placed & (seconds["ttft"] > 0), first - starts, -1),
        last_token_ns=np.where(placed & has_decode, last - starts, -1),
        flags={"engine_negative": negative, "engine_clipped": clipped},
    )


VLLM: Final = Engine(
    name="vllm",
    scope="vllm",
    span_stages={**_STARTUP, **_CHILDREN},
    is_request=lambda name: name == "llm_request",
    read=read,
)

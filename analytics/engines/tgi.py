"""Hugging Face TGI 3 (Rust router, back end v3): a handler span per request, a short span per batch that it is in.

The router's exporter names every scope `opentelemetry-otlp`; its spans are known by that and their names. Batches are
traces of their own, tied to the requests by links; they become jobs, not requests. The first `infer` of a request is
its prefill and lasts until the next batch is formed, so prefill ends where the first token is sent (`send_generation`).
Durations on the handler span are texts in Rust's Debug form. The number of tokens is not stated.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tailtrace.analytics.engines.engine import Engine, Interval, Reading, RequestSpans
from tailtrace.analytics.engines.units import earliest, latest, rust_durations

_HANDLERS: Final = frozenset({"generate", "generate_stream", "completions", "chat_completions", "compat_generate"})
_STAGES: Final = {
    "validate": "tokenize",
    "queued": "queue",
    "waiting": "batch_wait",
    "infer": "decode",
    "prefill": "prefill",
    "decode": "decode",
    "send_generation": "stream_out",
}
_NAMES: Final = frozenset(
    {*_HANDLERS, *_STAGES, "async_stream", "generate_stream_internal", "generate_internal", "batch", "send_error",
     "filter_batch", "filter_send_generations", "concatenate", "filter", "generate_token", "schedule", "next_batch"}
)  # fmt: skip


def read(spans: RequestSpans) -> Reading:
    """parse and queue from the handler's durations, prefill between the first batch and the first token sent."""
    starts, ends, n = spans.starts, spans.ends, len(spans.starts)
    validation, has_validation = rust_durations(spans.text("validation_time").to_pylist())
    queue, has_queue = rust_durations(spans.text("queue_time").to_pylist())
    batches = spans.below(lambda name: name == "infer")
    sent = spans.below(lambda name: name == "send_generation")
    scheduled, has_batch = earliest(batches.owner, batches.starts, n)
    first, has_first = earliest(sent.owner, sent.starts, n)
    last, _ = latest(sent.owner, sent.ends, n)
    parsed = np.minimum(starts + validation, ends)
    begins = np.where(has_batch, np.maximum(scheduled - queue, starts), parsed)
    leaves = np.where(has_batch, scheduled, np.minimum(parsed + queue, ends))
    return Reading(
        intervals=(
            Interval("parse", starts, parsed, has_validation),
            Interval("queue", begins, leaves, has_queue),
            Interval("prefill", scheduled, np.maximum(first, scheduled), has_batch & has_first),
        ),
        ttft_ns=np.where(has_first, np.clip(first - starts, 0, ends - starts), -1),
        last_token_ns=np.where(has_first, np.clip(last - starts, 0, ends - starts), -1),
    )


TGI: Final = Engine(
    name="tgi",
    scope="",
    span_stages=_STAGES,
    is_request=_HANDLERS.__contains__,
    read=read,
    shared_scope="opentelemetry-otlp",
    shared_names=_NAMES.__contains__,
)

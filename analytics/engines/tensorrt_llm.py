"""TensorRT-LLM: one `llm_request` span per request with vLLM's keys, in seconds; a missing value is written as -1.

It states the queue and the first token, and neither prefill nor decode: what lies between stays unexplained.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tailtrace.analytics.engines.engine import Engine, Interval, Reading, RequestSpans
from tailtrace.analytics.engines.units import SECOND, to_ns


def read(spans: RequestSpans) -> Reading:
    """The queue, counted from the span's start, and the first token."""
    starts, ends = spans.starts, spans.ends
    queue, has_queue = to_ns(spans.number("gen_ai.latency.time_in_queue"), SECOND)
    ttft, has_ttft = to_ns(spans.number("gen_ai.latency.time_to_first_token"), SECOND)
    return Reading(
        intervals=(Interval("queue", starts, np.minimum(starts + queue, ends), has_queue),),
        ttft_ns=np.where(has_ttft & (ttft > 0), np.minimum(ttft, ends - starts), -1),
        last_token_ns=np.full(len(starts), -1, np.int64),
    )


TENSORRT_LLM: Final = Engine(
    name="tensorrt-llm",
    scope="trt.llm",
    span_stages={},
    is_request=lambda name: name == "llm_request",
    read=read,
)

"""SGLang 0.5.3 and later: a root span per request, a span per thread below it, slices of time below those.

| versions | differences |
|---|---|
| 0.5.3 to 0.5.6 | a fourth level above the root, one span per bootstrap room; `dc_dispatch` for `dpc_dispatch` |
| 0.5.10 on | as the table below |

Slices are measured, so stages come from their names. `gen_ai.latency.time_in_model_prefill` runs from the end of the
dispatch and holds the queue: it is not read. Every tensor-parallel rank emits its own slices; they overlap and count
once. What the detokenizer and the stream to the client take has no span. A retracted request is preempted from the
`retract` event to its next forward slice.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tailtrace.analytics.engines.engine import OUTCOMES, Engine, Int64s, Interval, Mask, Reading, RequestSpans
from tailtrace.analytics.engines.units import SECOND, to_ns

_SLICES: Final = {
    "tokenize": "tokenize",
    "api_server_dispatch": "engine_submit",
    "request_process": "engine_submit",
    "dpc_dispatch": "route",
    "dc_dispatch": "route",
    "mm_encode": "mm_encode",
    "prefill_waiting": "queue",
    "prefill_forward": "prefill",
    "chunked_prefill": "prefill",
    "decode_waiting": "batch_wait",
    "decode_forward": "decode",
    "decode_loop": "decode",
    "spec_draft": "decode",
    "spec_verify": "decode",
    "prefill_prepare": "kv_transfer",
    "prefill_bootstrap": "kv_transfer",
    "prefill_transfer_kv_cache": "kv_transfer",
    "decode_prepare": "kv_transfer",
    "decode_bootstrap": "kv_transfer",
    "decode_transferred": "kv_transfer",
}
_FORWARDS: Final = frozenset({"prefill_forward", "chunked_prefill", "decode_forward", "decode_loop"})
# In unified mode the role is empty and a blank leads the name.
_ROOT: Final = re.compile(r"\w* ?Req \S+")
_MOST_RETRACTIONS: Final = 8
_LONGEST_BITS: Final = 42


def is_request(name: str) -> bool:
    return _ROOT.fullmatch(name) is not None


def is_thread(name: str) -> bool:
    return "(host:" in name


def _preempted(spans: RequestSpans) -> list[Interval]:
    """From each retraction to the same request's next forward slice; open ones end with the request."""
    inside = spans.below(lambda name: not is_request(name))
    events = [inside.event("retract", k) for k in range(1, _MOST_RETRACTIONS + 1)]
    owner = np.concatenate([inside.owner[known] for _, known in events])
    if not len(owner):
        return []
    times = np.concatenate([at[known] for at, known in events])
    forwards = spans.below(_FORWARDS.__contains__)
    keys = np.sort(_key(spans, forwards.owner, forwards.starts))
    after = np.searchsorted(keys, _key(spans, owner, times))
    found = keys[np.minimum(after, len(keys) - 1)] if len(keys) else np.full(len(owner), -1, np.int64)
    resumed = (after < len(keys)) & (found >> _LONGEST_BITS == owner)
    ends = np.where(resumed, spans.starts[owner] + (found & ((1 << _LONGEST_BITS) - 1)), spans.ends[owner])
    return [Interval("preempted", times, np.maximum(ends, times), np.ones(len(owner), np.bool_), owner)]


def _key(spans: RequestSpans, owner: Int64s, times: Int64s) -> Int64s:
    """Order by request, then by time in it."""
    offset = np.clip(times - spans.starts[owner], 0, (1 << _LONGEST_BITS) - 1)
    keys: Int64s = (owner << _LONGEST_BITS) | offset
    return keys


def _aborted(spans: RequestSpans) -> Mask:
    """A thread failed and the root states no usage."""
    threads = spans.below(is_thread)
    failed = np.zeros(len(spans.starts), np.bool_)
    failed[threads.owner[threads.errors]] = True
    return failed & (spans.count("gen_ai.usage.completion_tokens") < 0)


def read(spans: RequestSpans) -> Reading:
    """First and last token, retractions, aborts; and decode from attributes where the slices are missing."""
    starts, ends = spans.starts, spans.ends
    ttft, placed = to_ns(spans.number("gen_ai.latency.time_to_first_token"), SECOND)
    decode, has_decode = to_ns(spans.number("gen_ai.latency.time_in_model_decode"), SECOND)
    placed &= ttft > 0
    first = np.minimum(starts + ttft, ends)
    last = np.minimum(first + decode, ends)
    return Reading(
        intervals=(Interval("decode", first, last, placed & has_decode), *_preempted(spans)),
        ttft_ns=np.where(placed, first - starts, -1),
        last_token_ns=np.where(placed & has_decode, last - starts, -1),
        outcomes=np.where(_aborted(spans), OUTCOMES.index("error"), -1).astype(np.int8),
    )


SGLANG: Final = Engine(
    name="sglang",
    scope="sglang server",
    span_stages=_SLICES,
    prefix_stages=(("mooncake_", "kv_transfer"),),
    is_request=is_request,
    is_frame=is_thread,
    read=read,
)

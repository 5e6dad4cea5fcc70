"""NVIDIA Dynamo: the front end's request, its router, and the workers; the engine's own spans nest below.

| generation | spans |
|---|---|
| up to 1.5 | `http-request`, `router.route_request`, `kv_router.*`, `handle_payload`, `engine.generate` |
| lifecycle tracing (on request) | `request.lifecycle`, `request.preprocessing`, `worker.*`, `response.streaming*` |

The scope is the service's name, so the spans are known by their own. `worker.operation.prefill` and `.decode` hold the
engine's queue unless the engine's spans are there too; then the finer ones count. Times on spans are milliseconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace.analytics.engines.engine import OUTCOMES, Engine, Int8s, Interval, Reading, RequestSpans
from tailtrace.analytics.engines.units import MILLISECOND, to_ns

REQUEST_TRACE: Final = "dynamo.request.trace"
"""Name of the span that stands for a record of the request-trace file."""

_REQUESTS: Final = frozenset({"http-request", "request.lifecycle", REQUEST_TRACE})
_STAGES: Final = {
    "request.preprocessing": "tokenize",
    "router.route_request": "route",
    "worker.admission": "admission",
    "client_request": "dispatch",
    "request.dispatch": "dispatch",
    "worker.operation.encode": "mm_encode",
    "worker.operation.prefill": "prefill",
    "worker.operation.decode": "decode",
}
_PREFIXES: Final = (
    ("kv_router.", "route"),
    ("response.streaming", "stream_out"),
    ("dynamo_request_plane_", "dispatch"),
)
_OWN: Final = frozenset({*_REQUESTS, *_STAGES, "handle_payload", "engine.generate", "worker.operation"})
_OUTCOMES: Final = {
    "success": "ok",
    "rejected": "rejected",
    "cancelled": "cancelled",
    "timed_out": "timeout",
    "failed": "error",
}


def _knows(name: str) -> bool:
    return name in _OWN or name.startswith(tuple(prefix for prefix, _ in _PREFIXES))


def _outcomes(stated: pa.StringArray) -> Int8s:
    codes = pc.index_in(stated, pa.array(list(_OUTCOMES))).fill_null(-1).to_numpy(zero_copy_only=False)
    table = np.array([*(OUTCOMES.index(outcome) for outcome in _OUTCOMES.values()), -1], np.int8)
    outcomes: Int8s = table[codes]
    return outcomes


def read(spans: RequestSpans) -> Reading:
    """TTFT and outcome; of a request-trace record also its waits, placed by its arrival."""
    starts, ends = spans.starts, spans.ends
    ttft, has_ttft = to_ns(spans.number("ttft_ms"), MILLISECOND)
    wait, has_wait = to_ns(spans.number("prefill_wait_time_ms"), MILLISECOND)
    prefill, has_prefill = to_ns(spans.number("prefill_time_ms"), MILLISECOND)
    has_ttft &= ttft > 0
    first = np.minimum(starts + ttft, ends)
    scheduled = np.maximum(first - prefill, starts)
    recorded = has_ttft & has_prefill
    unknown = np.full(len(starts), -1, np.int64)
    first_of_two, second = spans.text("dynamo.request.terminal.outcome"), spans.text("request.outcome")
    stated = pc.if_else(pc.not_equal(first_of_two, ""), first_of_two, second)
    return Reading(
        intervals=(
            Interval("queue", np.maximum(scheduled - wait, starts), scheduled, recorded & has_wait),
            Interval("prefill", scheduled, first, recorded),
            Interval("decode", first, ends, recorded),
        ),
        ttft_ns=np.where(has_ttft, first - starts, -1),
        last_token_ns=np.where(recorded, ends - starts, unknown),
        outcomes=_outcomes(stated),
    )


DYNAMO: Final = Engine(
    name="dynamo",
    scope="dynamo",
    span_stages=_STAGES,
    prefix_stages=_PREFIXES,
    is_request=_REQUESTS.__contains__,
    read=read,
    shared_scope="*",
    shared_names=_knows,
)

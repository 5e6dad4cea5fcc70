"""Triton Inference Server, trace mode opentelemetry: request, model and compute spans whose marks are events.

There is no queue span: the queue runs from the model span's QUEUE_START to its compute span's COMPUTE_START and holds
the delay of dynamic batching. Ensembles nest further model spans; each has its own queue and compute. A decoupled
(streaming) model has no first-token mark, so TTFT is unknown.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tailtrace.analytics.engines.engine import Engine, Int64s, Interval, Reading, RequestSpans, SpanGroup, SpansBelow

# The models of the usual tensorrt_llm ensemble; any other model's span has no stage of its own.
_MODELS: Final = {
    "preprocessing": "tokenize",
    "tensorrt_llm": "forward",
    "postprocessing": "detokenize",
}


def _between(stage: str, spans: SpanGroup, begin: str, end: str) -> Interval:
    starts, has_start = spans.event(begin)
    ends, has_end = spans.event(end)
    owners: Int64s | None = getattr(spans, "owner", None)
    return Interval(stage, starts, np.maximum(ends, starts), has_start & has_end, owners)


def _models(inside: SpansBelow, count: int) -> list[str]:
    """The model that each request asked for: the outermost model span's, an ensemble's own name where it is one."""
    names = inside.text("triton.model_name").to_pylist()
    found = [""] * count
    for at in np.flatnonzero(inside.parent < 0).tolist():
        found[inside.owner[at]] = found[inside.owner[at]] or names[at]
    return found


def read(spans: RequestSpans) -> Reading:
    """Every pair of events that bounds a stage, of the request and of all models below it."""
    inside = spans.below(lambda name: True)
    queued, has_queue = inside.event("QUEUE_START")
    computing, has_compute = inside.event("COMPUTE_START")
    of_model = inside.parent
    paired = has_compute & (of_model >= 0)
    paired[paired] = has_queue[of_model[paired]]
    began = np.where(paired, queued[np.maximum(of_model, 0)] if len(queued) else queued, 0)
    unknown = np.full(len(spans.starts), -1, np.int64)
    return Reading(
        intervals=(
            _between("net_in", spans, "HTTP_RECV_START", "HTTP_RECV_END"),
            _between("net_in", spans, "GRPC_WAITREAD_START", "GRPC_WAITREAD_END"),
            _between("parse", inside, "REQUEST_START", "QUEUE_START"),
            Interval("queue", began, np.maximum(computing, began), paired, inside.owner),
            _between("dispatch", inside, "COMPUTE_START", "COMPUTE_INPUT_END"),
            _between("forward", inside, "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"),
            _between("postprocess", inside, "COMPUTE_OUTPUT_START", "COMPUTE_END"),
            _between("stream_out", spans, "HTTP_SEND_START", "HTTP_SEND_END"),
            _between("stream_out", spans, "GRPC_SEND_START", "GRPC_SEND_END"),
        ),
        ttft_ns=unknown,
        last_token_ns=unknown,
        models=_models(inside, len(spans.starts)),
    )


TRITON: Final = Engine(
    name="triton",
    scope="triton-server",
    span_stages=_MODELS,
    is_request=lambda name: name == "InferRequest",
    read=read,
)

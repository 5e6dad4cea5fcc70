"""The start of a replica as spans: a trace of its own, kind startup."""

from __future__ import annotations

from collections.abc import Callable

from tailtrace.instrumentation.otlp import INTERNAL, SpanData
from tailtrace.lab.simulation import Startup

# Shares of a cold start of a 70B model from a local disk.
PHASES = (
    ("engine_init", 0.10), ("model_load", 0.52), ("compile", 0.16), ("kv_alloc", 0.04),
    ("graph_capture", 0.12), ("warmup", 0.06),
)  # fmt: skip


def startup_spans(startup: Startup, start_unix_ns: int, ids: Callable[[int], bytes]) -> list[SpanData]:
    """The entry span and one span for each phase, back to back."""
    trace, root = ids(16), ids(8)
    start = start_unix_ns + startup.start_ns
    spans = [SpanData(trace, root, b"", "startup", INTERNAL, start, start + startup.length_ns)]
    done = 0.0
    for stage, share in PHASES:
        begin, done = done, done + share
        spans.append(
            SpanData(trace, ids(8), root, stage, INTERNAL, start + int(begin * startup.length_ns),
                     start + int(done * startup.length_ns), {"tailtrace.stage": stage})
        )  # fmt: skip
    return spans

"""A trace in the format that Perfetto and chrome://tracing open.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format, complete events).
"""

from __future__ import annotations

from typing import Any

from tailtrace.analytics.queries.waterfall import Waterfall


def chrome_trace(data: Waterfall) -> dict[str, Any]:
    """Services are processes, depths are threads, times are microseconds from the first span."""
    ids = [data.span_ids[at : at + 16] for at in range(0, len(data.span_ids), 16)]
    services = sorted(set(data.services))
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": data.words[number]}} for number in services
    ]
    for at, span in enumerate(ids):
        events.append(
            {
                "ph": "X", "name": data.words[data.names[at]], "cat": data.words[data.stages[at]] or "span",
                "ts": data.starts[at] / 1000, "dur": data.durations[at] / 1000, "pid": data.services[at],
                "tid": data.depths[at], "args": {"span_id": span},
            }
        )  # fmt: skip
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"trace_id": data.trace_id, "start_unix_ns": data.start_unix_ns, "shown": data.shown,
                      "total": data.total},
    }  # fmt: skip

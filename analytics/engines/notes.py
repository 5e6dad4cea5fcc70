"""What an engine says in events and links, carried with a span's attributes so that the job needs no further columns.

An event of a name below becomes `@event/NAME/k` (its k-th occurrence): nanoseconds after the span's start. A span
without a parent that names another trace as its cause gets `@link`. The view of the inbox (schema 0050) writes the same
notes; nothing of it is stored with the span.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tailtrace.analytics.trace import Span

LINK: Final = "@link"
MOST_OCCURRENCES: Final = 8
EVENTS: Final = (
    "retract",
    "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END",
    "HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END",
    "GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END",
)  # fmt: skip
_KNOWN: Final = frozenset(EVENTS)


def sql(table: str) -> str:
    """The notes of the spans of `table` (otel_traces, or its alias) as an array of (key, text) pairs."""
    return f"""if(empty(Events.Name) AND empty(Links.TraceId), [], arrayConcat(
    arrayFilter(note -> note.1 != '', arrayMap((name, time, k) -> (
      if(name IN {EVENTS} AND k <= {MOST_OCCURRENCES}, concat('@event/', name, '/', toString(k)), ''),
      toString(toUnixTimestamp64Nano(time) - toUnixTimestamp64Nano(Timestamp))),
      Events.Name, Events.Timestamp, arrayEnumerateUniq(Events.Name))),
    if({table}.ParentSpanId = '' AND notEmpty(Links.TraceId),
      [('{LINK}', concat(Links.TraceId[1], '/', Links.SpanId[1]))], [])))"""


def event_key(name: str, occurrence: int) -> str:
    return f"@event/{name}/{occurrence}"


def notes(span: Span) -> dict[str, str]:
    """The notes of a span read whole."""
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for event in span.events:
        seen[event.name] += 1
        if event.name in _KNOWN and seen[event.name] <= MOST_OCCURRENCES:
            found[event_key(event.name, seen[event.name])] = str(event.unix_ns - span.start_unix_ns)
    if not span.parent_span_id and span.links:
        found[LINK] = f"{span.links[0].trace_id}/{span.links[0].span_id}"
    return found

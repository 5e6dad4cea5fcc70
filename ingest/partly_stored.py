"""Which spans of a refused segment are in the store already.

A segment that failed in the middle may have left its spans in `otel_traces`, and only its own token would keep a second
insert from adding them again. Its parts have other tokens, so spans that are there are cut out of them first. Steps and
metrics have no identity to ask for: parts of a segment of those can repeat points.
"""

import struct
from collections.abc import Iterator, Sequence

from tailtrace.ingest.receiver.checks.mend import mend
from tailtrace.ingest.receiver.checks.scan import Edit
from tailtrace.ingest.receiver.checks.wire import FIXED64, LENGTH, WireError, fields
from tailtrace.ingest.receiver.limits import Limits
from tailtrace.ingest.store.protocol import Store

_TRACES_A_QUERY = 5_000
_STORED = """
SELECT TraceId AS trace, SpanId AS span FROM otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({start:Int64}, 'UTC')
  AND Timestamp <= fromUnixTimestamp64Nano({end:Int64}, 'UTC')
  AND toStartOfMinute(Timestamp) >= toStartOfMinute(fromUnixTimestamp64Nano({start:Int64}, 'UTC'))
  AND toStartOfMinute(Timestamp) <= toStartOfMinute(fromUnixTimestamp64Nano({end:Int64}, 'UTC'))
  AND TraceId IN {traces:Array(String)}
"""

_Span = tuple[
    str, str, int, int, int
]  # trace id and span id in hex, start (ns), start and end of its field in the body


def without_stored_spans(store: Store, bodies: Sequence[bytes]) -> list[bytes]:
    """The bodies without the spans that `otel_traces` holds; their number and order stay."""
    spans = [_read(body) for body in bodies]
    stored = _stored(store, [span for each in spans for span in each])
    if not stored:
        return list(bodies)
    out = []
    for body, each in zip(bodies, spans, strict=True):
        cuts = [(start, end, int(Edit.BAD_SPAN_ID)) for trace, span, _, start, end in each if (trace, span) in stored]
        out.append(mend(body, cuts, Limits())[0] if cuts else body)
    return out


def _stored(store: Store, spans: Sequence[_Span]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    traces = sorted({span[0] for span in spans})
    if not traces:
        return found
    bounds = {"start": min(span[2] for span in spans), "end": max(span[2] for span in spans)}
    for first in range(0, len(traces), _TRACES_A_QUERY):
        parameters = {**bounds, "traces": traces[first : first + _TRACES_A_QUERY]}
        found.update((str(row["trace"]), str(row["span"])) for row in store.query(_STORED, parameters, role="jobs"))
    return found


def _read(body: bytes) -> list[_Span]:
    try:
        return list(_spans(body))
    except WireError:  # what is no protobuf was not stored
        return []


def _spans(body: bytes) -> Iterator[_Span]:
    for number, wire, _, low, high in fields(body, 0, len(body)):
        if (number, wire) != (1, LENGTH):
            continue
        for group, group_wire, _, group_low, group_high in fields(body, low, high):
            if (group, group_wire) != (2, LENGTH):
                continue
            for item, item_wire, tag, start, end in fields(body, group_low, group_high):
                if (item, item_wire) == (2, LENGTH):
                    yield _span(body, tag, start, end)


def _span(body: bytes, tag: int, start: int, end: int) -> _Span:
    ids = {1: "", 2: ""}
    began = 0
    for number, wire, _, low, high in fields(body, start, end):
        if number in ids and wire == LENGTH:
            ids[number] = body[low:high].hex()
        elif number == 7 and wire == FIXED64:
            began = min(struct.unpack_from("<Q", body, low)[0], (1 << 63) - 1)
    return ids[1], ids[2], began, tag, end

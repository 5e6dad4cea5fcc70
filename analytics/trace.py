"""A span as the analysis sees it, exactly as sent, and when the spans of a stored trace are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tailtrace.ingest.store import Store

MAX_SPANS: Final = 200_000
# A stored duration from here on is a negative one that wrapped round in an unsigned column.
CLOCK_FAULT_DURATION_NS: Final = 1 << 62

# A row for each insert that had spans of it, until merged. Planning a minimum takes longer than reading them; planned,
# the times are read only where the id is.
_BOUNDS: Final = "SELECT Start, End FROM otel_traces_trace_id_ts WHERE TraceId = {trace_id:String}"
# For statements that say themselves what is read first. Their index is asked for all parts before any is read: asked
# while reading, each of forty parts is opened with all its columns for the one that has the trace.
UNPLANNED: Final = {"query_plan_enable_optimizations": 0, "use_skip_indexes_on_data_read": 0}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened inside a span at one instant."""

    name: str
    unix_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """A span of this or another trace that this one names as its cause."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Span:
    """One span as stored; ids are lower-case hex, times integer nanoseconds since 1970 (UTC)."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: str
    service: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    resource: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    status: str = "Unset"
    status_message: str = ""
    events: Sequence[Event] = ()
    links: Sequence[Link] = ()
    clock_fault: bool = False

    @property
    def duration_ns(self) -> int:
        return self.end_unix_ns - self.start_unix_ns


def trace_bounds(store: Store, trace_id: str) -> tuple[int, int] | None:
    """Earliest start and latest end of a trace's spans, ns since 1970; None when none is stored."""
    rows = store.query_arrow(_BOUNDS, {"trace_id": trace_id})
    if not rows.num_rows:
        return None
    starts, ends = (rows[name].cast(pa.int64()).to_numpy() for name in ("Start", "End"))
    return int(starts.min()), int(ends.max())

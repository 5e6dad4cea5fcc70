"""The critical path and the derived intervals of a judged request, as the JSON has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the critical path. Segments follow each other without a gap from the request's start to its end."""

    span_id: str
    stage: str
    service: str
    name: str
    edge: str
    start_unix_ns: str
    duration_ns: int
    derived: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """A stage interval made from an engine's attributes; `span_id` is the span that carried them."""

    span_id: str
    stage: str
    start_unix_ns: str
    duration_ns: int


def longest(path: Sequence[Any], limit: int) -> Sequence[Any]:
    """At most `limit` of the judge's segments: the longest, in time order."""
    if len(path) <= limit:
        return path
    chosen = sorted(range(len(path)), key=lambda at: path[at].start_unix_ns - path[at].end_unix_ns)[:limit]
    return [path[at] for at in sorted(chosen)]


def segments(path: Iterable[Any]) -> list[Segment]:
    """From the judge's segments."""
    return [
        Segment(
            one.span_id,
            one.stage,
            one.service,
            one.name,
            one.edge,
            str(int(one.start_unix_ns)),
            int(one.end_unix_ns) - int(one.start_unix_ns),
            bool(one.derived),
        )
        for one in path
    ]


def intervals(derived: Iterable[Any]) -> list[Interval]:
    """From the judge's derived intervals (span id, stage, start, end)."""
    made = []
    for one in derived:
        start, end = int(one.start_unix_ns), int(one.end_unix_ns)
        made.append(Interval(one.span_id, one.stage, str(start), end - start))
    return made

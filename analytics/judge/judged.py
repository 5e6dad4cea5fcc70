"""What judging a trace gives: for each request its row and its critical path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the critical path. Segments of a request touch each other and cover it from start to end.

    `stage` may be "unexplained". `edge` is "caller->callee" where the stage is network, else empty. `derived` says that
    the stretch comes from an engine's attributes and not from a span of its own; `span_id` is then the engine's span.
    """

    span_id: str
    stage: str
    service: str
    name: str
    edge: str
    start_unix_ns: int
    end_unix_ns: int
    derived: bool

    @property
    def duration_ns(self) -> int:
        return self.end_unix_ns - self.start_unix_ns


@dataclass(frozen=True, slots=True)
class Derived:
    """A stage interval made from an engine span's attributes, clipped to that span."""

    span_id: str
    stage: str
    start_unix_ns: int
    end_unix_ns: int


@dataclass(frozen=True, slots=True)
class Judged:
    """One request. `row` holds the columns of `requests` but Sign, Revision and Round; times in it are integer ns."""

    row: Mapping[str, Any]
    segments: Sequence[Segment]
    derived: Sequence[Derived]

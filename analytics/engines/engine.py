"""What a normaliser says about one inference engine: which of its spans mean what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Int8s = np.ndarray[Any, np.dtype[np.int8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

OUTCOMES = ("ok", "error", "cancelled", "timeout", "rejected")


class SpanGroup(Protocol):
    """Some spans of one engine in a batch; all arrays are by span, times integer ns since 1970."""

    starts: Int64s
    ends: Int64s
    errors: Mask

    def number(self, key: str) -> Floats:
        """The attribute as a number, NaN where absent or not a number."""

    def count(self, key: str) -> Int64s:
        """The attribute as an integer, -1 where absent, negative or not a number."""

    def text(self, key: str) -> pa.StringArray:
        """The attribute, empty where absent."""

    def event(self, name: str, occurrence: int = 1) -> tuple[Int64s, Mask]:
        """When the span's event of that name happened (its first, second, ...), and whether it did."""


class SpansBelow(SpanGroup, Protocol):
    """Spans below the request spans. `owner` is the position of the request span, `parent` of the parent here or -1."""

    owner: Int64s
    parent: Int64s


class RequestSpans(SpanGroup, Protocol):
    """The request spans of one engine in a batch."""

    def below(self, wanted: Callable[[str], bool]) -> SpansBelow:
        """The engine's spans below them whose names are wanted; each belongs to the innermost request span above it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A stage of request spans: start <= end where `known`. Arrays are by request span, or by `owner` where given."""

    stage: str
    starts: Int64s
    ends: Int64s
    known: Mask
    owner: Int64s | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine's request spans tell. -1 is unknown; offsets are ns from the span's start.

    `outcomes` are positions in OUTCOMES, where the engine states one; `models` names the model where the request span
    itself does not, else empty.
    """

    intervals: Sequence[Interval]
    ttft_ns: Int64s
    last_token_ns: Int64s
    flags: Mapping[str, Mask] = field(default_factory=dict)
    outcomes: Int8s | None = None
    models: Sequence[str] | None = None


def nothing(name: str) -> bool:
    return False


def tells_nothing(spans: RequestSpans) -> Reading:
    """For request spans that carry identity and tokens alone."""
    unknown = np.full(len(spans.starts), -1, np.int64)
    return Reading((), unknown, unknown)


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine, of the versions whose spans look so.

    A span belongs to it when its scope is `scope` or below it; or, where the engine has no scope of its own, when its
    scope is `shared_scope` ("*" is any that no engine has) and its name is one that `shared_names` knows.
    `span_stages` names the stage of spans by their name, `prefix_stages` by its beginning, first match first;
    `is_frame` knows spans that only group what one thread did for a request: what lies below counts as its parent's.
    `is_request` knows the names of the spans that stand for one request (or one sample of it), read by `read`.
    """

    name: str
    scope: str
    span_stages: Mapping[str, str]
    is_request: Callable[[str], bool] = nothing
    read: Callable[[RequestSpans], Reading] = tells_nothing
    prefix_stages: Sequence[tuple[str, str]] = ()
    is_frame: Callable[[str], bool] | None = None
    shared_scope: str = ""
    shared_names: Callable[[str], bool] = nothing

    def owns(self, scope: str) -> bool:
        return bool(self.scope) and (scope == self.scope or scope.startswith(self.scope + "."))

    def may_share(self, scope: str) -> bool:
        """Whether spans of this scope, which no engine owns, are this engine's if their name says so."""
        return self.shared_scope == "*" or (self.shared_scope != "" and scope == self.shared_scope)

    def stage_of(self, span_name: str) -> str:
        """The stage of a span of this engine, or an empty string."""
        found = self.span_stages.get(span_name)
        if found is not None:
            return found
        return next((stage for prefix, stage in self.prefix_stages if span_name.startswith(prefix)), "")

"""What a normaliser says about one inference engine: which of its spans mean what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class RequestSpans(Protocol):
    """The request spans of one engine in a batch; all arrays are by span, times integer ns since 1970."""

    starts: Int64s
    ends: Int64s

    def number(self, key: str) -> Floats:
        """The attribute as a number, NaN where absent or not a number."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A stage of every request span: start <= end where `known`."""

    stage: str
    starts: Int64s
    ends: Int64s
    known: Mask


@dataclass(frozen=True, slots=True)
class Reading:
    """What the attributes of an engine's request spans tell. -1 is unknown; offsets are ns from the span's start."""

    intervals: Sequence[Interval]
    ttft_ns: Int64s
    last_token_ns: Int64s
    flags: Mapping[str, Mask] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine, of the versions whose spans look so.

    A span belongs to it when its scope is `scope` or below it. `span_stages` names the stage of spans by their name;
    `request_spans` are the names of the spans that stand for one request (or one sample of it), read by `read`.
    """

    name: str
    scope: str
    span_stages: Mapping[str, str]
    request_spans: frozenset[str]
    read: Callable[[RequestSpans], Reading]

    def owns(self, scope: str) -> bool:
        return scope == self.scope or scope.startswith(self.scope + ".")

    def stage_of(self, span_name: str) -> str:
        """The stage of a span of this engine, or an empty string."""
        return self.span_stages.get(span_name, "")

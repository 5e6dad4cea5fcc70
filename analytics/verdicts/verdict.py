"""What a verdict is: a cause with its share, how sure it is, the evidence, and what else it could be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

Confidence = Literal["high", "medium", "low"]
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reading against its threshold; `source` says where the threshold comes from. Units are in `metric`."""

    metric: str
    value: float
    threshold: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """A further cause and its share of the same time."""

    cause: str
    share: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`share` is the cause's part of the time that was to be explained. `reason` is said where the cause is unknown."""

    cause: str
    share: float
    confidence: Confidence
    window: tuple[str, str]
    evidence: list[Evidence] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Some time of one stage given to one cause. `strength`, 0 to 1: how far its evidence bears it."""

    stage: str
    cause: str
    ns: float
    strength: float
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""

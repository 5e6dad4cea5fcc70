"""What the rules look at: requests, steps and counters of a stretch of time, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from tailtrace import stages

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STAGES = (*(stage.name for stage in stages.REQUEST_STAGES), stages.UNEXPLAINED)
STAGE_INDEX = {name: index for index, name in enumerate(STAGES)}


@dataclass(frozen=True, slots=True)
class Requests:
    """n requests. `whole` and `first` are (n, stages) ns of the request and of the part before its first token, NaN in
    `first` where there was none. Token counts and round trips are NaN where unknown. `replica` indexes `replicas`.
    `streamed`: had a first token of its own, before the whole answer.
    """

    start_ns: Ints
    duration_ns: Floats
    ttft_ns: Floats
    whole: Floats
    first: Floats
    input_tokens: Floats
    output_tokens: Floats
    cached_tokens: Floats
    client_rtt_ns: Floats
    ok: NDArray[np.bool_]
    streamed: NDArray[np.bool_]
    replica: Ints
    replicas: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start_ns)

    def where(self, keep: NDArray[np.bool_]) -> Requests:
        """The rows that are kept."""
        return replace(self, **{name: getattr(self, name)[keep] for name in _REQUEST_ARRAYS})


_REQUEST_ARRAYS = tuple(each.name for each in fields(Requests) if each.name != "replicas")


@dataclass(frozen=True, slots=True)
class Steps:
    """n engine steps, each standing for `weight` of them; what an engine does not say is NaN."""

    start_ns: Ints
    duration_ns: Floats
    weight: Floats
    replica: Ints
    replicas: tuple[str, ...]
    running: Floats
    waiting: Floats
    waiting_capacity: Floats
    prefill_tokens: Floats
    decode_tokens: Floats
    preempted: Floats
    kv_usage: Floats
    gpu_ns: Floats

    def __len__(self) -> int:
        return len(self.start_ns)

    def where(self, keep: NDArray[np.bool_]) -> Steps:
        """The steps that are kept."""
        return replace(self, **{name: getattr(self, name)[keep] for name in _STEP_ARRAYS})


_STEP_ARRAYS = tuple(each.name for each in fields(Steps) if each.name != "replicas")


@dataclass(frozen=True, slots=True)
class Startup:
    """A replica came up in [start, end); `replica` is its service.instance.id."""

    replica: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Counters:
    """Readings of GPUs (by UUID) and hosts (by host.id). `covered`: the share of the window that samples cover."""

    readings: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    covered: float = 0.0

    def get(self, metric: str, thing: str, attribute: str = "") -> float | None:
        """The reading of one GPU or host; None where there is none."""
        return self.readings.get((metric, thing, attribute))

    def over(self, metric: str, things: tuple[str, ...], attribute: str = "") -> list[float]:
        """The readings of several GPUs or hosts, those that are there."""
        found = (self.readings.get((metric, thing, attribute)) for thing in things)
        return [value for value in found if value is not None]

    def attributes(self, metric: str, thing: str) -> dict[str, float]:
        """Readings of a metric by its attribute."""
        return {key[2]: value for key, value in self.readings.items() if key[0] == metric and key[1] == thing}


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything seen of a service in [since, until)."""

    since_ns: int
    until_ns: int
    requests: Requests
    steps: Steps
    counters: Counters
    startups: tuple[Startup, ...] = ()
    gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return (self.until_ns - self.since_ns) / 1e9

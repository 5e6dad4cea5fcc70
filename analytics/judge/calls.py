"""Requests that an engine reported itself: what their attributes tell, and which of them are samples of one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace import stages
from tailtrace.analytics.attribution.tree import Forest
from tailtrace.analytics.engines import ENGINES
from tailtrace.analytics.engines.engine import Int64s, Interval
from tailtrace.analytics.judge.batch import Batch
from tailtrace.analytics.judge.span_group import RequestGroup
from tailtrace.analytics.judge.stratum import mix, text_hash

MAX_TOKENS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Calls:
    """Engine requests of a batch. Arrays are by call (length c) unless said otherwise; -1 is unknown; offsets in ns
    from the call's own start.

    at: the span. group: samples of one request share it. of_span: position of a span's call or -1 (by span).
    superseded: samples other than the one that ends last (by span). outer: another engine's request lies below it (a
    front end's span over its workers'). outcomes: positions in OUTCOMES. models: named below the call's own span, else
    empty. Derived intervals as `attribute.Spans` wants them.
    """

    at: Any
    group: Any
    samples: Any
    of_span: Any
    superseded: Any
    outer: Any
    outcomes: Any
    ttft: Int64s
    last_token: Int64s
    input_tokens: Int64s
    output_tokens: Int64s
    cached_tokens: Int64s
    output_of_all: Int64s
    ttft_of_all: Int64s
    request_id: pa.Array
    models: pa.Array
    flags: dict[str, Any]
    first_derived: Any
    derived_stage: Any
    derived_start: Any
    derived_end: Any


def read_calls(batch: Batch, forest: Forest) -> Calls:
    """The engine requests among the kept spans of a batch."""
    n = len(batch)
    at = np.flatnonzero(batch.calls & forest.kept)
    count = len(at)
    ttft, last = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    outcomes = np.full(count, -1, np.int8)
    models = np.full(count, "", object)
    flags: dict[str, Any] = {}
    owner, stage, start, end = [], [], [], []
    for k in np.unique(batch.engines[at]):
        mine = np.flatnonzero(batch.engines[at] == k)
        reading = ENGINES[k].read(RequestGroup(batch, forest, at[mine], int(k)))
        ttft[mine], last[mine] = reading.ttft_ns, reading.last_token_ns
        if reading.outcomes is not None:
            outcomes[mine] = reading.outcomes
        if reading.models is not None:
            models[mine] = reading.models
        for name, mask in reading.flags.items():
            flags.setdefault(name, np.zeros(count, np.bool_))[mine] = mask
        for interval in reading.intervals:
            known, of = _owned(interval, at[mine])
            owner.append(of)
            stage.append(np.full(len(of), stages.INDEX[interval.stage], np.int8))
            start.append(interval.starts[known])
            end.append(interval.ends[known])
    attributes = batch.attributes.of(batch.row[at])
    request_id = attributes.text("gen_ai.request.id")
    group, samples, superseded = _samples(batch, at, request_id)
    own_output = attributes.count(*OUTPUT_KEYS, "output_tokens", limit=MAX_TOKENS)
    of_span = np.full(n, -1, np.int64)
    of_span[at] = np.arange(count)
    return Calls(
        at=at,
        group=group,
        samples=samples,
        of_span=of_span,
        superseded=superseded,
        outer=_outer(forest, at),
        outcomes=outcomes,
        ttft=ttft,
        last_token=last,
        input_tokens=attributes.count(*INPUT_KEYS, "input_tokens", limit=MAX_TOKENS),
        output_tokens=own_output,
        cached_tokens=attributes.count(*CACHED_KEYS, limit=MAX_TOKENS),
        output_of_all=_total(group, own_output),
        ttft_of_all=_earliest(group, batch.starts[at], ttft),
        request_id=request_id,
        models=pa.array(models, pa.string()),
        flags=flags,
        **_derived(n, owner, stage, start, end),
    )


def _owned(interval: Interval, at: Any) -> tuple[Any, Any]:
    """Which of the interval's entries are known, and the spans that those belong to."""
    known = interval.known
    return known, (at if interval.owner is None else at[interval.owner])[known]


def _outer(forest: Forest, at: Any) -> Any:
    """Which calls have another call below them."""
    place = forest.place[at]
    sorted_places = np.sort(place)
    after = np.searchsorted(sorted_places, place, side="right")
    following = sorted_places[np.minimum(after, len(at) - 1)] if len(at) else place
    return (after < len(at)) & (following < place + forest.size[at])


INPUT_KEYS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT_KEYS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CACHED_KEYS = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cached_tokens",
)


def _samples(batch: Batch, at: Any, request_id: pa.Array) -> tuple[Any, Any, Any]:
    """Group and its size by call; and by span, which are not the last of their group."""
    superseded = np.zeros(len(batch), np.bool_)
    count = len(at)
    if count == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), superseded
    trace = np.searchsorted(batch.offsets, at, side="right").astype(np.uint64)
    named = pc.not_equal(request_id, "").to_numpy(zero_copy_only=False)
    own = np.where(named, np.uint64(0), batch.ids[at])
    key = mix([trace, batch.parents[at], text_hash(request_id), own])
    _, group, sizes = np.unique(key, return_inverse=True, return_counts=True)
    if sizes.max() > 1:
        order = np.lexsort((~batch.ids[at], batch.ends[at], group))
        is_last = np.append(group[order][1:] != group[order][:-1], True)
        superseded[at[order[~is_last]]] = True
    return group.astype(np.int64), sizes[group].astype(np.int64), superseded


def _total(group: Any, values: Any) -> Any:
    """The sum over each call's group; -1 where one of it is unknown."""
    if len(group) == 0:
        return values
    sums = np.zeros(group.max() + 1, np.int64)
    unknown = np.zeros(group.max() + 1, np.bool_)
    np.add.at(sums, group, np.maximum(values, 0))
    unknown[group[values < 0]] = True
    return np.where(unknown[group], -1, sums[group])


def _earliest(group: Any, starts: Any, ttft: Any) -> Any:
    """Each call's offset to the earliest first token of its group; -1 where none is known."""
    if len(group) == 0:
        return ttft
    never = np.iinfo(np.int64).max
    first = np.full(group.max() + 1, never, np.int64)
    np.minimum.at(first, group, np.where(ttft >= 0, starts + np.maximum(ttft, 0), never))
    return np.where(first[group] == never, -1, np.maximum(first[group] - starts, 0))


def _derived(n: int, owner: list[Any], stage: list[Any], start: list[Any], end: list[Any]) -> dict[str, Any]:
    """Intervals sorted by their span, with where each span's begin."""
    if not owner:
        empty = np.zeros(0, np.int64)
        return {
            "first_derived": np.zeros(n + 1, np.int64),
            "derived_stage": np.zeros(0, np.int8),
            "derived_start": empty,
            "derived_end": empty,
        }
    span = np.concatenate(owner)
    order = np.argsort(span, kind="stable")
    counts = np.bincount(span, minlength=n)
    return {
        "first_derived": np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        "derived_stage": np.concatenate(stage)[order],
        "derived_start": np.concatenate(start)[order],
        "derived_end": np.concatenate(end)[order],
    }

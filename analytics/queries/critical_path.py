"""The critical path and the derived intervals of a judged request, as the JSON has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace import stages
from tailtrace.analytics.attribution import attribute
from tailtrace.analytics.queries.trace_columns import TraceColumns

STAGE_NAMES: Final = (*stages.NAMES, stages.UNEXPLAINED)


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


def entry_of(columns: TraceColumns, ids: Sequence[str], span_id: str | None) -> int | None:
    """The judge's number of the entry span that was asked for, else of the root, else of the first; None where nothing
    was judged.
    """
    judged = columns.judged
    entries = [int(entry) for entry in judged.entries]
    if not entries:
        return None
    roots: list[bool] = judged.roots.tolist()
    begin = columns.batch.starts

    def rank(at: int) -> tuple[bool, bool, int]:
        return ids[int(columns.batch.row[entries[at]])] != span_id, not roots[at], int(begin[entries[at]])

    return entries[min(range(len(entries)), key=rank)]


def path_of(columns: TraceColumns, entry: int) -> list[list[int]]:
    """The path of an entry as [the judge's span, stage number, start, end, derived], in time order."""
    path: list[list[int]] = attribute.segments(entry, columns.judged.spans, columns.judged.forest).tolist()
    return path


def longest(path: Sequence[Sequence[int]], limit: int) -> Sequence[Sequence[int]]:
    """At most `limit` stretches of a path: the longest, in time order."""
    if len(path) <= limit:
        return path
    chosen = sorted(range(len(path)), key=lambda at: path[at][2] - path[at][3])[:limit]
    return [path[at] for at in sorted(chosen)]


def segments(columns: TraceColumns, ids: Sequence[str], path: Sequence[Sequence[int]]) -> list[Segment]:
    """A path, as `path_of` has it, in words."""
    batch, remote = columns.batch, columns.judged.forest.remote
    services, names = batch.service_texts.to_pylist(), batch.name_texts.to_pylist()
    network = stages.INDEX["network"]
    made = []
    for span, stage, start, end, derived in path:
        own = services[batch.services[span]]
        callee = remote[span] if stage == network else -1
        edge = f"{own}->{services[callee]}" if callee >= 0 else ""
        made.append(
            Segment(ids[int(batch.row[span])], STAGE_NAMES[stage], own, names[batch.names[span]], edge, str(start),
                    end - start, bool(derived))
        )  # fmt: skip
    return made


def derived_of(columns: TraceColumns) -> list[tuple[int, int, int, int]]:
    """Stage intervals made from attributes, as (span, stage, start, end), of stages without a measured span in the
    request they belong to; every request of the trace, each interval once.
    """
    judged = columns.judged
    forest, calls, batch = judged.forest, judged.calls, columns.batch
    found: dict[tuple[int, int, int, int], None] = {}
    for entry in judged.entries.tolist():
        lo = int(forest.place[entry])
        below = forest.order[lo : lo + int(forest.size[entry])]
        measured = set(np.unique(batch.stages[below[1:]]).tolist())
        for span in below[calls.first_derived[below] < calls.first_derived[below + 1]].tolist():
            for d in range(int(calls.first_derived[span]), int(calls.first_derived[span + 1])):
                stage = int(calls.derived_stage[d])
                if stage not in measured:
                    found[span, stage, int(calls.derived_start[d]), int(calls.derived_end[d])] = None
    return list(found)


def intervals(
    columns: TraceColumns, ids: Sequence[str], derived: Sequence[tuple[int, int, int, int]]
) -> list[Interval]:
    """Derived intervals, as `derived_of` has them, in words."""
    rows: Any = columns.batch.row
    return [
        Interval(ids[int(rows[span])], STAGE_NAMES[stage], str(start), end - start)
        for span, stage, start, end in derived
    ]

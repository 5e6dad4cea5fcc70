"""A trace in columns, small enough that 20,000 spans draw at once: the waterfall folds, zooms and scrolls without
asking again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tailtrace.analytics.queries.critical_path import STAGE_NAMES, derived_of, entry_of, path_of
from tailtrace.analytics.queries.trace_columns import TraceColumns, trace_columns
from tailtrace.analytics.queries.trace_id import trace_id as checked
from tailtrace.analytics.queries.trace_tree import keep, sizes_below, trace_tree
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store

MAX_ROWS: Final = 20_000


class _Words:
    """Numbers texts in the order they are first seen."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        if word not in self._numbers:
            self._numbers[word] = len(self.words)
            self.words.append(word)
        return self._numbers[word]

    def column(self, coded: tuple[list[int], list[str]], order: Sequence[int]) -> list[int]:
        """Numbers of a coded column, in another order."""
        codes, texts = coded
        mapped = [self.number(text or "") for text in texts]
        return [mapped[codes[at]] for at in order]


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Columns of one length, in tree order. Starts are ns after `start_unix_ns`; names, services and stages are indexes
    into `words`; `span_ids` is all ids in one text, 16 digits each; `flags` are 1 error, 2 orphan, 4 simulated.

    `path` is the critical path as [row or -1, stage word, duration, derived 0/1], gapless from `path_start`.
    `derived` are stage intervals made from an engine's attributes as [row, stage word, start, duration].
    """

    trace_id: str
    entry_span_id: str | None
    start_unix_ns: str
    duration_ns: int
    total: int
    shown: int
    words: list[str]
    span_ids: str = field(repr=False)
    names: list[int] = field(repr=False)
    services: list[int] = field(repr=False)
    stages: list[int] = field(repr=False)
    starts: list[int] = field(repr=False)
    durations: list[int] = field(repr=False)
    depths: list[int] = field(repr=False)
    sizes: list[int] = field(repr=False)
    flags: list[int] = field(repr=False)
    path_start: int
    path: list[list[int]] = field(repr=False)
    derived: list[list[int]] = field(repr=False)


def waterfall(store: Store, trace_id: str, *, span_id: str | None = None, max_rows: int = MAX_ROWS) -> Waterfall:
    """Columns of a trace, with the critical path of the entry `span_id` (default: the root). Raises Rejected,
    NotFound.
    """
    trace = checked(trace_id)
    columns = trace_columns(store, trace)
    if columns is None:
        raise NotFound(
            f"no spans are stored under trace id {trace}: it was never received, or retention has removed them"
        )
    ids = columns.texts("Id")
    entry = entry_of(columns, ids, span_id)
    path = path_of(columns, entry) if entry is not None else []
    derived = derived_of(columns)
    tree = trace_tree(ids, columns.texts("Parent"))
    lengths = columns.numbers("DurationNs")
    rows = columns.batch.row
    wanted_rows = {int(rows[span]) for span, *_ in path} | {int(rows[span]) for span, *_ in derived}
    place = {at: position for position, at in enumerate(tree.order)}
    kept = keep(tree.parents, [int(lengths[at]) for at in tree.order], {place[at] for at in wanted_rows}, max_rows)
    order = [tree.order[position] for position in kept]
    position_of = {at: row for row, at in enumerate(order)}
    words = _Words()
    words.number("")
    begin = int(columns.numbers("StartNs")[order].min())
    starts = columns.numbers("StartNs")[order] - begin
    durations = lengths[order].astype(np.int64)
    return Waterfall(
        trace_id=trace,
        entry_span_id=ids[int(rows[entry])] if entry is not None else None,
        start_unix_ns=str(begin),
        duration_ns=int((starts + durations).max()),
        total=len(ids),
        shown=len(order),
        words=words.words,
        span_ids="".join(ids[at] for at in order),
        names=words.column(columns.codes("Shown"), order),
        services=words.column(columns.codes("Service"), order),
        stages=words.column(columns.codes("Stage"), order),
        starts=starts.tolist(),
        durations=durations.tolist(),
        depths=[tree.depths[position] for position in kept],
        sizes=tree.sizes if len(kept) == len(ids) else sizes_below(_kept_parents(tree.parents, kept)),
        flags=_flags(columns, order, [tree.orphans[position] for position in kept]),
        path_start=path[0][2] - begin if path else 0,
        path=[
            [position_of.get(int(rows[span]), -1), words.number(STAGE_NAMES[stage]), end - start, int(derived_part)]
            for span, stage, start, end, derived_part in path
        ],
        derived=[
            [position_of[int(rows[span])], words.number(STAGE_NAMES[stage]), start - begin, end - start]
            for span, stage, start, end in derived
            if int(rows[span]) in position_of
        ],
    )


def _kept_parents(parents: Sequence[int], kept: Sequence[int]) -> list[int]:
    position = {old: new for new, old in enumerate(kept)}
    return [position.get(parents[old], -1) for old in kept]


def _flags(columns: TraceColumns, order: Sequence[int], orphans: Sequence[bool]) -> list[int]:
    errors = _where(columns.codes("Status"), {"Error": True})
    simulated: list[bool] = columns.table["Simulated"].to_pylist()
    return [errors[at] | orphan << 1 | bool(simulated[at]) << 2 for at, orphan in zip(order, orphans, strict=True)]


def _where(coded: tuple[list[int], list[str]], wanted: Mapping[str, Any]) -> list[bool]:
    codes, texts = coded
    hit = [text in wanted for text in texts]
    return [hit[code] for code in codes]

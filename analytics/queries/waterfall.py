"""A trace in columns, small enough that 20,000 spans draw at once: the waterfall folds, zooms and scrolls without
asking again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tailtrace.analytics.judge import judge_spans
from tailtrace.analytics.queries.critical_path import Interval, Segment, intervals, segments
from tailtrace.analytics.queries.trace_id import trace_id as checked
from tailtrace.analytics.queries.trace_spans import SpanRow, span_rows
from tailtrace.analytics.trace import read_trace
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store

MAX_ROWS = 20_000


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
    spans = read_trace(store, trace)
    rows = span_rows(spans)
    if not rows:
        raise NotFound(
            f"no spans are stored under trace id {trace}: it was never received, or retention has removed them"
        )
    judged = judge_spans(spans)
    own = next((one for one in judged if one.row["SpanId"] == span_id), None)
    own = own or next((one for one in judged if one.row["IsRoot"]), judged[0] if judged else None)
    path = segments(own.segments) if own else []
    derived = [one for each in judged for one in intervals(each.derived)]
    kept = keep(rows, {one.span_id for one in path} | {one.span_id for one in derived}, max_rows)
    return _columns(trace, str(own.row["SpanId"]) if own else None, kept, len(rows), path, derived)


def keep(rows: Sequence[SpanRow], wanted: set[str], limit: int) -> list[SpanRow]:
    """At most about `limit` rows: the wanted ones, then the longest, each with all its parents."""
    if len(rows) <= limit:
        return list(rows)
    parents = _parents(rows)
    chosen: set[int] = set()
    order = sorted(
        range(len(rows)), key=lambda index: (rows[index].span_id not in wanted, -rows[index].duration_ns, index)
    )
    for index in order:
        if len(chosen) >= limit:
            break
        at: int | None = index
        while at is not None and at not in chosen:
            chosen.add(at)
            at = parents[at]
    return [rows[index] for index in sorted(chosen)]


def _parents(rows: Sequence[SpanRow]) -> list[int | None]:
    """Index of each row's parent in tree order, None at the top."""
    parents: list[int | None] = []
    line: list[int] = []
    for index, row in enumerate(rows):
        del line[row.depth :]
        parents.append(line[-1] if line else None)
        line.append(index)
    return parents


def _columns(
    trace: str,
    entry: str | None,
    rows: Sequence[SpanRow],
    total: int,
    path: Sequence[Segment],
    derived: Sequence[Interval],
) -> Waterfall:
    starts = [int(row.start_unix_ns) for row in rows]
    begin = min(starts)
    end = max(start + row.duration_ns for start, row in zip(starts, rows, strict=True))
    words, index = _Words(), {row.span_id: number for number, row in enumerate(rows)}
    words.number("")
    return Waterfall(
        trace_id=trace,
        entry_span_id=entry,
        start_unix_ns=str(begin),
        duration_ns=end - begin,
        total=total,
        shown=len(rows),
        words=words.words,
        span_ids="".join(row.span_id for row in rows),
        names=[words.number(row.name) for row in rows],
        services=[words.number(row.service) for row in rows],
        stages=[words.number(row.stage) for row in rows],
        starts=[start - begin for start in starts],
        durations=[row.duration_ns for row in rows],
        depths=[row.depth for row in rows],
        sizes=_sizes(rows),
        flags=[(row.status == "Error") | row.orphan << 1 | row.simulated << 2 for row in rows],
        path_start=int(path[0].start_unix_ns) - begin if path else 0,
        path=[[index.get(one.span_id, -1), words.number(one.stage), one.duration_ns, int(one.derived)] for one in path],
        derived=[
            [index[one.span_id], words.number(one.stage), int(one.start_unix_ns) - begin, one.duration_ns]
            for one in derived
            if one.span_id in index
        ],
    )


def _sizes(rows: Sequence[SpanRow]) -> list[int]:
    """Rows below each row, counted among those kept."""
    sizes = [0] * len(rows)
    parents = _parents(rows)
    for number in range(len(rows) - 1, -1, -1):
        parent = parents[number]
        if parent is not None:
            sizes[parent] += sizes[number] + 1
    return sizes

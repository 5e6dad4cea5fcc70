"""The judge: spans in, requests out. The job and the request page use the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tailtrace import stages
from tailtrace.analytics.attribution.attribute import Spans, attribute, segments
from tailtrace.analytics.attribution.tree import Forest, build
from tailtrace.analytics.judge.batch import Batch, Resources, from_inbox, inbox_table
from tailtrace.analytics.judge.calls import Calls, read_calls
from tailtrace.analytics.judge.judged import Derived, Judged, Segment
from tailtrace.analytics.judge.processes import Processes
from tailtrace.analytics.judge.rows import Arrivals, first_tokens, request_rows
from tailtrace.analytics.trace import Span

_NAMES = (*stages.NAMES, stages.UNEXPLAINED)
_MINUTE_NS = 60_000_000_000


@dataclass(frozen=True)
class JudgedBatch:
    """The requests of a batch by the span index of their `entries`, and what they were made from. `roots` says which
    are the first of their trace.
    """

    batch: Batch
    forest: Forest
    calls: Calls
    entries: Any
    roots: Any
    spans: Spans
    resources: Resources
    arrivals: Arrivals | None

    @cached_property
    def rows(self) -> pa.Table:
        """Rows of `requests`, one an entry. Made when first asked for: a waterfall does without."""
        tokens = first_tokens(self.batch, self.calls, self.entries)
        found = attribute(self.entries, tokens.ttft, self.spans, self.forest)
        executor = np.where(found.executor >= 0, found.executor, self.entries)
        ran_on = self.batch.resources
        processes = Processes(ran_on[self.entries], ran_on[executor], self.resources)
        return request_rows(
            self.batch, self.forest, self.calls, self.entries, self.roots, tokens, found, processes, self.arrivals
        )


def judge_batch(
    batch: Batch, resources: Resources, arrivals: Arrivals | None = None, *, as_stored: bool = False
) -> JudgedBatch:
    """Every request of whole traces. `resources` are by hash; unknown ones count as empty.

    `as_stored`: in the order of the table, so that the store has nothing to sort; else in the order of the spans.
    """
    names = np.int64(1) << np.int64(20)
    ties = (batch.stages.astype(np.int64) + 1) * names + batch.kinds
    forest = build(
        batch.offsets,
        batch.ids,
        batch.parents,
        batch.starts,
        batch.ends,
        batch.services,
        batch.kinds,
        batch.asynchronous,
        ties,
        max(len(batch.service_texts), 1),
    )
    calls = read_calls(batch, forest)
    entries = np.flatnonzero(forest.entry & ~calls.superseded)
    if as_stored:
        entries = entries[_stored_order(batch, entries)]
    group = np.full(len(batch), -1, np.int64)
    group[calls.at] = np.where(calls.outer, -1, calls.group)
    spans = Spans(
        batch.ids,
        batch.starts,
        batch.ends,
        batch.services,
        batch.kinds,
        batch.names,
        batch.stages,
        batch.faults,
        group,
        calls.superseded,
        calls.first_derived,
        calls.derived_stage,
        calls.derived_start,
        calls.derived_end,
    )
    return JudgedBatch(batch, forest, calls, entries, _roots(batch, forest, calls, entries), spans, resources, arrivals)


def _stored_order(batch: Batch, entries: Any) -> Any:
    """What sorts entries by the minute they end in, service, trace id and span id."""
    ranks = np.argsort(np.argsort(np.array(batch.service_texts.to_pylist() or [""])))
    minute = batch.ends[entries] // _MINUTE_NS
    ids = batch.traces.view(">u8").astype(np.uint64)[np.searchsorted(batch.offsets, entries, side="right") - 1]
    block = (minute - (minute.min() if len(minute) else 0)) * len(ranks) + ranks[batch.services[entries]]
    if len(entries) and block.max() < 1 << 20:
        key = (block.astype(np.uint64) << np.uint64(44)) | (ids[:, 0] >> np.uint64(20))
        order = np.argsort(key)
        ordered = key[order]
        if (ordered[1:] != ordered[:-1]).all():
            return order
    return np.lexsort((batch.ids[entries], ids[:, 1], ids[:, 0], block))


def _roots(batch: Batch, forest: Forest, calls: Calls, entries: Any) -> Any:
    """Which entries are the first of their trace; the sample that ends last stands for all of its group."""
    roots = forest.root.copy()
    for k in np.flatnonzero(roots[calls.at] & calls.superseded[calls.at]):
        same = calls.at[(calls.group == calls.group[k]) & ~calls.superseded[calls.at]]
        roots[same] = True
    return roots[entries]


def judge_spans(spans: Sequence[Span]) -> list[Judged]:
    """The requests of one trace, first come first, from its spans in any order."""
    if not spans:
        return []
    table, resources = inbox_table(spans)
    judged = judge_batch(from_inbox(table), resources)
    batch = judged.batch
    ends = judged.rows["End"].cast(pa.int64())
    rows = judged.rows.set_column(0, "Start", judged.rows["Start"].cast(pa.int64())).set_column(1, "End", ends)
    order = sorted(range(len(judged.entries)), key=lambda e: (batch.starts[judged.entries[e]], e))
    records = rows.to_pylist()
    return [
        Judged(
            records[e],
            _segments(judged, spans, int(judged.entries[e])),
            _derived(judged, spans, int(judged.entries[e])),
        )
        for e in order
    ]


def _segments(judged: JudgedBatch, spans: Sequence[Span], entry: int) -> list[Segment]:
    batch, forest = judged.batch, judged.forest
    services = batch.service_texts.to_pylist()
    names = batch.name_texts.to_pylist()
    out = []
    for span, stage, start, end, derived in segments(entry, judged.spans, forest).tolist():
        own = services[batch.services[span]]
        callee = forest.remote[span] if stage == stages.INDEX["network"] else -1
        edge = f"{own}->{services[callee]}" if callee >= 0 else ""
        span_id = spans[batch.row[span]].span_id
        out.append(Segment(span_id, _NAMES[stage], own, names[batch.names[span]], edge, start, end, bool(derived)))
    return out


def _derived(judged: JudgedBatch, spans: Sequence[Span], entry: int) -> list[Derived]:
    """Intervals made from attributes below the entry span, of stages that the request has no measured span for."""
    forest, calls, batch = judged.forest, judged.calls, judged.batch
    lo = int(forest.place[entry])
    below = forest.order[lo : lo + int(forest.size[entry])]
    measured = {int(stage) for stage in batch.stages[below[1:]] if stage >= 0}
    out = []
    for span in below.tolist():
        for d in range(int(calls.first_derived[span]), int(calls.first_derived[span + 1])):
            stage = int(calls.derived_stage[d])
            if stage not in measured:
                times = int(calls.derived_start[d]), int(calls.derived_end[d])
                out.append(Derived(spans[batch.row[span]].span_id, _NAMES[stage], *times))
    return out

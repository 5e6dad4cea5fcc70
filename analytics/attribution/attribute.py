"""Attribution of every entry span of a batch: nanoseconds by stage, before the first token and in all, and the path.

A request's generation layer (see layer.py) has its instants; the backward sweep (see sweep.py) has the others. Spans
that never blocked their parent take no part, nor does what lies below them. A span that starts after its parent ended
takes no part in the sweep, but its stage counts in the layer: a handler often ends before the stream that it started.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tailtrace import stages
from tailtrace.analytics.attribution.jit import kernel
from tailtrace.analytics.attribution.layer import DERIVED_RANK, RANK, resolve
from tailtrace.analytics.attribution.sweep import sweep
from tailtrace.analytics.attribution.tree import CLIENT, Forest

UNEXPLAINED: Final = len(stages.NAMES)
COLUMNS: Final = UNEXPLAINED + 1
_NETWORK: Final = stages.INDEX["network"]
_EXTERNAL: Final = stages.INDEX["external"]
_APP: Final = stages.INDEX["app"]
_PREFILL: Final = stages.INDEX["prefill"]
_FORWARD: Final = stages.INDEX["forward"]

# Bits of `Attribution.flags`.
ORPHANS: Final = 1
SKEWED: Final = 2
OVERRUN: Final = 4
INNER_CLOCK_FAULT: Final = 8
CUT_CYCLE: Final = 16

# A path of more distinct places keeps the first ones; the rest is added up by stage, without a name.
MAX_PATH: Final = 64


class Spans(NamedTuple):
    """The spans of a batch as arrays; `stages` are indexes of the vocabulary or -1, `names` codes for equality only.

    Derived intervals of span i are derived_*[first_derived[i]: first_derived[i + 1]]. `calls` are codes of engine
    requests or -1. `superseded` marks samples other than the one that ends last: their stages do not count.
    """

    ids: Any
    starts: Any
    ends: Any
    services: Any
    kinds: Any
    names: Any
    stages: Any
    faults: Any
    calls: Any
    superseded: Any
    first_derived: Any
    derived_stage: Any
    derived_start: Any
    derived_end: Any


class Attribution(NamedTuple):
    """By entry (length m, or m x COLUMNS): `total` and `first` in ns, the latter over [start, first token].

    executor: the span that ran prefill or forward on the path, or -1. call: the engine span that ends last, or -1, with
    `calls` how many distinct requests it made of engines. derived: bits of DERIVED_ORDER that came from attributes.
    Path items of entry e are path_*[first_path[e]: first_path[e + 1]]; path_span is -1 where names were folded.
    """

    total: Any
    first: Any
    spans: Any
    flags: Any
    executor: Any
    call: Any
    calls: Any
    derived: Any
    first_path: Any
    path_span: Any
    path_stage: Any
    path_ns: Any


@kernel
def _label(span: int, entry: int, spans: Spans, remote: Any) -> int:
    if spans.stages[span] >= 0:
        return int(spans.stages[span])
    if spans.kinds[span] == CLIENT:
        return _NETWORK if remote[span] >= 0 else _EXTERNAL
    return UNEXPLAINED if span == entry else _APP


@kernel
def _grown(array: Any, length: int) -> Any:
    bigger = np.empty(max(length, 2 * len(array)), array.dtype)
    for k in range(len(array)):  # a slice would bring its errors' texts along: a second of compiling
        bigger[k] = array[k]
    return bigger


@kernel
def _compose(
    entry: int, hi: int, swept: int, pieces: int, spans: Spans, remote: Any,
    sweep_span: Any, sweep_start: Any, sweep_end: Any,
    piece_start: Any, piece_end: Any, piece_item: Any, item_span: Any, item_stage: Any, item_derived: Any,
    out_span: Any, out_stage: Any, out_start: Any, out_end: Any, out_derived: Any,
) -> int:  # fmt: skip
    """Segments in time order: the layer's pieces up to `hi`, and the sweep's where the layer has none."""
    count = 0
    piece = 0
    covered = sweep_start[swept - 1] if swept > 0 else hi
    for k in range(swept - 1, -1, -1):
        at = max(sweep_start[k], covered)
        end = sweep_end[k]
        while at < end:
            if piece < pieces and piece_start[piece] < end:
                if piece_start[piece] > at:
                    out_span[count], out_stage[count] = sweep_span[k], _label(sweep_span[k], entry, spans, remote)
                    out_start[count], out_end[count], out_derived[count] = at, piece_start[piece], False
                    count += 1
                item = piece_item[piece]
                covered = min(piece_end[piece], hi)
                out_span[count], out_stage[count] = item_span[item], item_stage[item]
                out_start[count], out_end[count] = piece_start[piece], covered
                out_derived[count] = item_derived[item]
                count += 1
                at = covered
                piece += 1
            else:
                out_span[count], out_stage[count] = sweep_span[k], _label(sweep_span[k], entry, spans, remote)
                out_start[count], out_end[count], out_derived[count] = at, end, False
                count += 1
                at = end
    return count


def attribute(entries: Any, ttfts: Any, spans: Spans, forest: Forest) -> Attribution:
    """Attribution of `entries` (span indexes); `ttfts` are ns from their start, at most the duration, or -1."""
    found: Attribution = attribute_into(entries, ttfts, spans, forest, np.empty(0, np.int64), *_sums(len(entries)))[0]
    return found


def segments(entry: int, spans: Spans, forest: Forest) -> Any:
    """The critical path of one entry span: rows of (span, stage, start, end, derived) in time order."""
    return attribute_into(np.array([entry]), np.array([-1]), spans, forest, np.zeros(1, np.int64), *_sums(1))[1]


def _sums(entries: int) -> tuple[Any, Any]:
    """Zeros by stage and entry, twice. Made out here, where pages that are never written cost nothing."""
    return np.zeros((COLUMNS, entries), np.int64), np.zeros((COLUMNS, entries), np.int64)


@kernel
def attribute_into(entries: Any, ttfts: Any, spans: Spans, forest: Forest, want: Any, total: Any, first: Any) -> Any:
    """`attribute` into zeros by stage and entry; with any `want`, the last entry's critical path beside it."""
    m = len(entries)
    starts, ends, ids = spans.starts, spans.ends, spans.ids
    span_count = np.zeros(m, np.int64)
    flags = np.zeros(m, np.uint8)
    executor = np.full(m, -1, np.int64)
    call = np.full(m, -1, np.int64)
    calls = np.zeros(m, np.int64)
    derived_bits = np.zeros(m, np.int64)
    first_path = np.zeros(m + 1, np.int64)
    path_span = np.empty(8 * m + 2 * MAX_PATH, np.int64)
    path_stage = np.empty(8 * m + 2 * MAX_PATH, np.int8)
    path_ns = np.empty(8 * m + 2 * MAX_PATH, np.int64)
    rows = np.empty((0, 5), np.int64)
    largest = 1
    for e in range(m):
        largest = max(largest, forest.size[entries[e]])
    heap = np.empty(len(forest.children), np.int64)
    f_span, f_lo, f_cursor = (
        np.empty(largest + 1, np.int64),
        np.empty(largest + 1, np.int64),
        np.empty(largest + 1, np.int64),
    )
    f_next, f_heap = np.empty(largest + 1, np.int64), np.empty(largest + 1, np.int64)
    s_span, s_start, s_end = (
        np.empty(2 * largest + 2, np.int64),
        np.empty(2 * largest + 2, np.int64),
        np.empty(2 * largest + 2, np.int64),
    )
    room = 16
    i_rank, i_start, i_end = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    i_id, i_span, i_stage = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64)
    i_derived = np.empty(room, np.bool_)
    t_start, t_end, t_item = (
        np.empty(2 * room + 1, np.int64),
        np.empty(2 * room + 1, np.int64),
        np.empty(2 * room + 1, np.int64),
    )
    n_start, n_end, n_item = (
        np.empty(2 * room + 1, np.int64),
        np.empty(2 * room + 1, np.int64),
        np.empty(2 * room + 1, np.int64),
    )
    out_room = 2 * largest + 2 + 4 * room
    o_span, o_stage = np.empty(out_room, np.int64), np.empty(out_room, np.int64)
    o_start, o_end, o_derived = np.empty(out_room, np.int64), np.empty(out_room, np.int64), np.empty(out_room, np.bool_)
    for e in range(m):
        entry = entries[e]
        lo, hi = starts[entry], ends[entry]
        span_count[e] = forest.size[entry]
        items = 0
        measured = np.int64(0)
        has_derived = spans.first_derived[entry + 1] > spans.first_derived[entry]
        at = forest.place[entry]
        stop = at + forest.size[entry]
        if spans.calls[entry] >= 0:
            call[e] = entry
            calls[e] = 1
        skip_layer = at
        for p in range(at + 1, stop):
            i = forest.order[p]
            above = forest.parent[i]
            if forest.orphan[i] != 0:
                flags[e] |= CUT_CYCLE if forest.orphan[i] == 3 else ORPHANS
            if spans.faults[i]:
                flags[e] |= INNER_CLOCK_FAULT
            if starts[i] < starts[above]:
                flags[e] |= SKEWED
            if ends[i] > ends[above] and not forest.detached[i]:
                flags[e] |= OVERRUN
            if p < skip_layer:
                continue
            if forest.detached[i] or spans.superseded[i]:
                skip_layer = p + forest.size[i]
                continue
            if spans.calls[i] >= 0:
                if call[e] < 0 or spans.calls[call[e]] != spans.calls[i]:
                    calls[e] += 1
                if call[e] < 0 or ends[i] > ends[call[e]]:
                    call[e] = i
            if spans.first_derived[i + 1] > spans.first_derived[i]:
                has_derived = True
            stage = spans.stages[i]
            if stage >= 0 and DERIVED_RANK[stage] >= 0:
                measured |= np.int64(1) << np.int64(DERIVED_RANK[stage])
            if stage >= 0 and RANK[stage] >= 0:
                a, b = max(starts[i], lo), min(ends[i], hi)
                if a < b:
                    if items == len(i_rank):
                        room = 2 * items
                        i_rank, i_start, i_end = _grown(i_rank, room), _grown(i_start, room), _grown(i_end, room)
                        i_id, i_span, i_stage = _grown(i_id, room), _grown(i_span, room), _grown(i_stage, room)
                        i_derived = _grown(i_derived, room)
                    i_rank[items], i_start[items], i_end[items] = RANK[stage], a, b
                    i_id[items], i_span[items], i_stage[items], i_derived[items] = ids[i], i, stage, False
                    items += 1
        if has_derived:
            p = at
            while p < stop:
                i = forest.order[p]
                if p > at and (forest.detached[i] or spans.superseded[i]):
                    p += forest.size[i]
                    continue
                p += 1
                for d in range(spans.first_derived[i], spans.first_derived[i + 1]):
                    stage = spans.derived_stage[d]
                    a, b = max(spans.derived_start[d], lo), min(spans.derived_end[d], hi)
                    if a < b and not (measured >> np.int64(DERIVED_RANK[stage])) & 1:
                        if items == len(i_rank):
                            room = 2 * items
                            i_rank, i_start, i_end = _grown(i_rank, room), _grown(i_start, room), _grown(i_end, room)
                            i_id, i_span, i_stage = _grown(i_id, room), _grown(i_span, room), _grown(i_stage, room)
                            i_derived = _grown(i_derived, room)
                        i_rank[items], i_start[items], i_end[items] = DERIVED_RANK[stage], a, b
                        i_id[items], i_span[items], i_stage[items], i_derived[items] = ids[i], i, stage, True
                        items += 1
        if 2 * items + 1 > len(t_start):
            t_start, t_end, t_item = (
                _grown(t_start, 2 * items + 1),
                _grown(t_end, 2 * items + 1),
                _grown(t_item, 2 * items + 1),
            )
            n_start, n_end, n_item = (
                _grown(n_start, 2 * items + 1),
                _grown(n_end, 2 * items + 1),
                _grown(n_item, 2 * items + 1),
            )
        pieces = 0
        if items > 0:
            pieces = resolve(items, i_rank, i_start, i_end, i_id, t_start, t_end, t_item, n_start, n_end, n_item)
        need = 2 * forest.size[entry] + 2 + 2 * pieces
        if need > len(o_span):
            o_span, o_stage, o_start = _grown(o_span, need), _grown(o_stage, need), _grown(o_start, need)
            o_end, o_derived = _grown(o_end, need), _grown(o_derived, need)
        for half in range(2):
            if half == 0:
                if ttfts[e] <= 0:
                    continue
                until = lo + ttfts[e]
            else:
                until = hi
            swept = sweep(
                entry, lo, until, starts, ends, ids, forest.detached, forest.first_child, forest.children,
                heap, f_span, f_lo, f_cursor, f_next, f_heap, s_span, s_start, s_end,
            )  # fmt: skip
            count = _compose(
                entry, until, swept, pieces, spans, forest.remote, s_span, s_start, s_end,
                t_start, t_end, t_item, i_span, i_stage, i_derived, o_span, o_stage, o_start, o_end, o_derived,
            )  # fmt: skip
            into = first if half == 0 else total
            for k in range(count):
                into[o_stage[k], e] += o_end[k] - o_start[k]
        filled = first_path[e]
        if filled + 2 * MAX_PATH > len(path_span):
            room = 2 * len(path_span)
            path_span, path_stage, path_ns = _grown(path_span, room), _grown(path_stage, room), _grown(path_ns, room)
        head = filled
        for k in range(count):
            span, stage, ns = o_span[k], o_stage[k], o_end[k] - o_start[k]
            if executor[e] < 0 and stage in (_PREFILL, _FORWARD):
                executor[e] = span
            if o_derived[k]:
                derived_bits[e] |= np.int64(1) << np.int64(DERIVED_RANK[stage])
            found = -1
            for j in range(head, filled):
                other = path_span[j]
                if path_stage[j] == stage and (
                    other < 0
                    or (
                        spans.names[other] == spans.names[span]
                        and spans.services[other] == spans.services[span]
                        and (stage != _NETWORK or forest.remote[other] == forest.remote[span])
                    )
                ):
                    found = j
                    break
            if found < 0:
                found = filled
                path_span[found] = span if filled - head < MAX_PATH else -1
                path_stage[found] = stage
                path_ns[found] = 0
                filled += 1
            path_ns[found] += ns
        first_path[e + 1] = filled
        if len(want) > 0:
            rows = np.empty((count, 5), np.int64)
            for k in range(count):
                rows[k, 0], rows[k, 1], rows[k, 2], rows[k, 3], rows[k, 4] = (
                    o_span[k],
                    o_stage[k],
                    o_start[k],
                    o_end[k],
                    o_derived[k],
                )
    result = Attribution(
        total.T, first.T, span_count, flags, executor, call, calls, derived_bits, first_path,
        path_span[: first_path[m]], path_stage[: first_path[m]], path_ns[: first_path[m]],
    )  # fmt: skip
    return result, rows

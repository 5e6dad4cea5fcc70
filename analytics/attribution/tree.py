"""From the spans of many traces to trees: duplicates dropped, cycles cut, orphans put under an entry span.

An orphan goes under the first entry span of its own service that was running when it started, else under the trace's
root that was; a trace without a root leaves it alone. It is a request of its own unless it sits under its own service
as an internal span: then it is a piece of that request whose link was lost.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tailtrace.analytics.attribution.jit import kernel
from tailtrace.analytics.attribution.order import argsort_ids, argsort_latest

# Why a span has no parent of its own.
LINKED: Final = 0
ABSENT: Final = 1
MISSING: Final = 2
CYCLE: Final = 3

# OTLP's numbers of span kinds.
SERVER: Final = 2
CLIENT: Final = 3
PRODUCER: Final = 4
CONSUMER: Final = 5

# A chain of services deeper than this gets no more rows of its own, so that work stays linear in the spans.
MAX_ENTRY_DEPTH: Final = 32


class Forest(NamedTuple):
    """Trees over the spans of a batch, as arrays by span (length n) unless said otherwise.

    kept: not a duplicate. parent: index or -1. orphan: LINKED, ABSENT, MISSING or CYCLE. entry: gets a row. root: first
    entry span of its trace. detached: explicitly does not block its parent. remote: service code of a client span's
    remote child, or -1. children: spans by parent, latest end first; those of span i are children[first_child[i]:
    first_child[i + 1]] (length n + 1). order: kept spans of each trace in preorder, from the trace's offset on;
    place: the inverse; size: spans in the subtree, itself included.
    """

    kept: Any
    parent: Any
    orphan: Any
    entry: Any
    root: Any
    detached: Any
    remote: Any
    first_child: Any
    children: Any
    order: Any
    place: Any
    size: Any


@kernel
def _deduplicate(ids: Any, parents: Any, starts: Any, ends: Any, ties: Any, lo: int, by_id: Any, kept: Any) -> int:
    """Marks the kept span of each id and packs `by_id`: the earliest, then longest, then that of the smallest tie and
    parent, so that the order of arrival never decides."""
    n = len(by_id)
    count = 0
    i = 0
    while i < n:
        best = by_id[i]
        j = i + 1
        while j < n and ids[lo + by_id[j]] == ids[lo + best]:
            other = by_id[j]
            a, b = lo + other, lo + best
            if starts[a] != starts[b]:
                better = starts[a] < starts[b]
            elif ends[a] != ends[b]:
                better = ends[a] > ends[b]
            elif ties[a] != ties[b]:
                better = ties[a] < ties[b]
            else:
                better = parents[a] < parents[b]
            if better:
                best = other
            j += 1
        kept[lo + best] = True
        by_id[count] = best
        count += 1
        i = j
    return count


@kernel
def _find(ids: Any, lo: int, by_id: Any, count: int, wanted: Any) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ids[lo + by_id[middle]] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < count and ids[lo + by_id[low]] == wanted:
        return int(lo + by_id[low])
    return -1


@kernel
def _earlier(a: int, b: int, starts: Any, ids: Any) -> bool:
    return bool(starts[a] < starts[b] or (starts[a] == starts[b] and ids[a] < ids[b]))


@kernel
def _cut_cycles(
    lo: int, by_id: Any, count: int, ids: Any, starts: Any, parent: Any, orphan: Any, top: Any, path: Any
) -> None:
    """Makes the earliest span of each cycle an orphan; `top` becomes the root of each span's fragment."""
    for k in range(count):
        i = lo + by_id[k]
        depth = 0
        while top[i] == -1:
            top[i] = -2
            path[depth] = i
            depth += 1
            if parent[i] < 0:
                top[i] = i
                break
            i = parent[i]
            if top[i] == -2:
                first = i
                j = parent[i]
                while j != i:
                    if _earlier(j, first, starts, ids):
                        first = j
                    j = parent[j]
                parent[first] = -1
                orphan[first] = CYCLE
                top[i] = first
                break
        found = top[i]
        for d in range(depth):
            top[path[d]] = found


@kernel
def build(
    offsets: Any,
    ids: Any,
    parents: Any,
    starts: Any,
    ends: Any,
    services: Any,
    kinds: Any,
    asynchronous: Any,
    ties: Any,
    n_services: int,
) -> Forest:
    """Trees of the traces that lie at offsets[t]:offsets[t + 1]. ids and parents are uint64 (parent 0 = absent),
    times int64 ns with ends >= starts, services codes below n_services, kinds OTLP's numbers."""
    n = len(ids)
    kept = np.zeros(n, np.bool_)
    parent = np.full(n, -1, np.int64)
    orphan = np.zeros(n, np.uint8)
    entry = np.zeros(n, np.bool_)
    root = np.zeros(n, np.bool_)
    detached = np.zeros(n, np.bool_)
    remote = np.full(n, -1, np.int32)
    first_child = np.zeros(n + 1, np.int64)
    children = np.empty(n, np.int64)
    order = np.empty(n, np.int64)
    place = np.full(n, -1, np.int64)
    size = np.zeros(n, np.int64)
    top = np.full(n, -1, np.int64)
    cursor = np.empty(n, np.int64)
    depth_of = np.zeros(n, np.int32)
    first_entry = np.full(n_services, -1, np.int64)
    longest = 0
    for t in range(len(offsets) - 1):
        longest = max(longest, offsets[t + 1] - offsets[t])
    path = np.empty(longest + 1, np.int64)
    filled = 0
    for t in range(len(offsets) - 1):
        lo, hi = offsets[t], offsets[t + 1]
        by_id = argsort_ids(ids[lo:hi])
        count = _deduplicate(ids, parents, starts, ends, ties, lo, by_id, kept)
        for k in range(count):
            i = lo + by_id[k]
            if parents[i] == 0:
                orphan[i] = ABSENT
            else:
                parent[i] = _find(ids, lo, by_id, count, parents[i])
                if parent[i] < 0:
                    orphan[i] = MISSING
        _cut_cycles(lo, by_id, count, ids, starts, parent, orphan, top, path)
        main = -1
        for k in range(count):
            i = lo + by_id[k]
            if parent[i] < 0:
                rooted = orphan[i] == ABSENT
                if (
                    main < 0
                    or (rooted and orphan[main] != ABSENT)
                    or (rooted == (orphan[main] == ABSENT) and _earlier(i, main, starts, ids))
                ):
                    main = i
        if main < 0:
            continue
        if orphan[main] == ABSENT:
            _adopt(lo, by_id, count, main, ids, starts, ends, services, kinds, parent, orphan, entry, top, first_entry)
        for k in range(count):
            i = lo + by_id[k]
            p = parent[i]
            if p < 0:
                entry[i] = True
                continue
            if services[p] != services[i]:
                entry[i] = True
            detached[i] = asynchronous[i] or (kinds[i] == CONSUMER and kinds[p] == PRODUCER)
            first_child[p + 1] += 1
        root[main] = True
        latest = argsort_latest(by_id[:count], starts[lo:hi], ends[lo:hi])
        for i in range(lo, hi):
            cursor[i] = filled
            filled += first_child[i + 1]
            first_child[i + 1] = filled
        for k in range(count):
            i = lo + latest[k]
            p = parent[i]
            if p >= 0:
                children[cursor[p]] = i
                cursor[p] += 1
                if kinds[p] == CLIENT and remote[p] < 0 and (services[p] != services[i] or kinds[i] == SERVER):
                    remote[p] = services[i]
        at = lo
        depth = 0
        for k in range(count):
            if parent[lo + latest[k]] < 0:
                path[depth] = lo + latest[k]
                depth += 1
                while depth > 0:
                    depth -= 1
                    i = path[depth]
                    order[at] = i
                    place[i] = at
                    at += 1
                    size[i] = 1
                    if parent[i] >= 0:
                        depth_of[i] = depth_of[parent[i]]
                    if entry[i]:
                        depth_of[i] += 1
                        if depth_of[i] > MAX_ENTRY_DEPTH:
                            entry[i] = False
                    for c in range(first_child[i], first_child[i + 1]):
                        path[depth] = children[c]
                        depth += 1
        for a in range(at - 1, lo - 1, -1):
            i = order[a]
            if parent[i] >= 0:
                size[parent[i]] += size[i]
    return Forest(kept, parent, orphan, entry, root, detached, remote, first_child, children, order, place, size)


@kernel
def _adopt(
    lo: int,
    by_id: Any,
    count: int,
    main: int,
    ids: Any,
    starts: Any,
    ends: Any,
    services: Any,
    kinds: Any,
    parent: Any,
    orphan: Any,
    entry: Any,
    top: Any,
    first_entry: Any,
) -> None:
    """Puts orphans under a span that was running when they started."""
    orphans = 0
    for k in range(count):
        orphans += orphan[lo + by_id[k]] >= MISSING
    if orphans == 0:
        return
    for k in range(count):
        i = lo + by_id[k]
        if orphan[top[i]] == ABSENT and (parent[i] < 0 or services[parent[i]] != services[i]):
            best = first_entry[services[i]]
            if best < 0 or _earlier(i, best, starts, ids):
                first_entry[services[i]] = i
    for k in range(count):
        i = lo + by_id[k]
        if orphan[i] < MISSING:
            continue
        host = first_entry[services[i]]
        if host < 0 or starts[i] < starts[host] or starts[i] >= ends[host]:
            host = main
        if starts[i] >= starts[host] and starts[i] < ends[host]:
            parent[i] = host
            entry[i] = kinds[i] == SERVER or kinds[i] == CONSUMER
    for k in range(count):
        first_entry[services[lo + by_id[k]]] = -1

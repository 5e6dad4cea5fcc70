"""The backward sweep: which span held its parent back at each instant of a request.

From the end backwards, the blocking child that ends last before the cursor has the time down to its start; what no
child has is the span's own. A child counts only inside its parent. Iterative, so that a chain of any depth is fine, and
n log n: each span enters its parent's heap once.
"""

from __future__ import annotations

from typing import Any

from tailtrace.analytics.attribution.jit import kernel


@kernel
def _push(heap: Any, base: int, count: int, item: int, starts: Any, ids: Any) -> None:
    """Adds `item` to the heap in heap[base : base + count], whose top starts latest (then has the smallest id)."""
    at = count
    heap[base + at] = item
    while at > 0:
        up = (at - 1) >> 1
        a, b = heap[base + at], heap[base + up]
        if starts[a] > starts[b] or (starts[a] == starts[b] and ids[a] < ids[b]):
            heap[base + at], heap[base + up] = b, a
            at = up
        else:
            break


@kernel
def _pop(heap: Any, base: int, count: int, starts: Any, ids: Any) -> None:
    """Drops the top of a heap of `count` items."""
    last = count - 1
    heap[base] = heap[base + last]
    at = 0
    while True:
        best = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < last:
                a, b = heap[base + child], heap[base + best]
                if starts[a] > starts[b] or (starts[a] == starts[b] and ids[a] < ids[b]):
                    best = child
        if best == at:
            return
        heap[base + at], heap[base + best] = heap[base + best], heap[base + at]
        at = best


@kernel
def sweep(
    entry: int, lo: int, hi: int, starts: Any, ends: Any, ids: Any, detached: Any, first_child: Any, children: Any,
    heap: Any, frame_span: Any, frame_lo: Any, frame_cursor: Any, frame_next: Any, frame_heap: Any,
    out_span: Any, out_start: Any, out_end: Any,
) -> int:  # fmt: skip
    """Pieces of self time that cover [lo, hi] of `entry`, from the last to the first; returns how many.

    `heap` is as long as `children`, frames as long as the deepest chain, out arrays twice the subtree and one more.
    """
    count = 0
    depth = 0
    frame_span[0], frame_lo[0], frame_cursor[0] = entry, lo, hi
    frame_next[0], frame_heap[0] = first_child[entry], 0
    while depth >= 0:
        span = frame_span[depth]
        low = frame_lo[depth]
        cursor = frame_cursor[depth]
        if cursor <= low:
            depth -= 1
            continue
        base = first_child[span]
        stop = first_child[span + 1]
        following = frame_next[depth]
        waiting = frame_heap[depth]
        while following < stop and ends[children[following]] >= cursor:
            child = children[following]
            following += 1
            if starts[child] < cursor and not detached[child]:
                _push(heap, base, waiting, child, starts, ids)
                waiting += 1
        while waiting > 0 and starts[heap[base]] >= cursor:
            _pop(heap, base, waiting, starts, ids)
            waiting -= 1
        chosen = -1
        top = cursor
        if waiting > 0:
            chosen = heap[base]
            _pop(heap, base, waiting, starts, ids)
            waiting -= 1
        else:
            while following < stop and detached[children[following]]:
                following += 1
            if following < stop:
                chosen = children[following]
                top = ends[chosen]
                following += 1
        frame_next[depth] = following
        frame_heap[depth] = waiting
        if chosen < 0 or top <= low:
            out_span[count], out_start[count], out_end[count] = span, low, cursor
            count += 1
            depth -= 1
            continue
        if top < cursor:
            out_span[count], out_start[count], out_end[count] = span, top, cursor
            count += 1
        frame_cursor[depth] = starts[chosen]
        depth += 1
        frame_span[depth] = chosen
        frame_lo[depth] = max(starts[chosen], low)
        frame_cursor[depth] = top
        frame_next[depth] = first_child[chosen]
        frame_heap[depth] = 0
    return count

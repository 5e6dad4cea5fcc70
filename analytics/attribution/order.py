"""Sorting inside kernels: stable, n log n at worst, cheap for the dozen spans of an ordinary trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailtrace.analytics.attribution.jit import kernel

SMALL = 32


@kernel
def argsort_ids(ids: Any) -> Any:
    """Positions that sort `ids` ascending, equal ones in their order of appearance."""
    n = len(ids)
    if n > SMALL:
        return np.argsort(ids, kind="mergesort")
    order = np.empty(n, np.int64)
    for i in range(n):
        j = i
        while j > 0 and ids[order[j - 1]] > ids[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    return order


@kernel
def argsort_latest(by_id: Any, starts: Any, ends: Any) -> Any:
    """The positions of `by_id`, latest end first, then latest start, then in the order of `by_id`."""
    n = len(by_id)
    if n > SMALL:
        first = by_id[np.argsort(-starts[by_id], kind="mergesort")]
        return first[np.argsort(-ends[first], kind="mergesort")]
    order = np.empty(n, np.int64)
    for i in range(n):
        item = by_id[i]
        start, end = starts[item], ends[item]
        j = i
        while j > 0:
            before = order[j - 1]
            if ends[before] > end or (ends[before] == end and starts[before] >= start):
                break
            order[j] = before
            j -= 1
        order[j] = item
    return order


@kernel
def argsort_layer(ranks: Any, starts: Any, ids: Any, count: int) -> Any:
    """Positions of the first `count` intervals by rank, then start, then id, then as they came."""
    if count > SMALL:
        first = np.argsort(ids[:count], kind="mergesort")
        second = first[np.argsort(starts[first], kind="mergesort")]
        return second[np.argsort(ranks[second], kind="mergesort")]
    order = np.empty(count, np.int64)
    for i in range(count):
        j = i
        while j > 0:
            k = order[j - 1]
            if ranks[k] < ranks[i] or (
                ranks[k] == ranks[i] and (starts[k] < starts[i] or (starts[k] == starts[i] and ids[k] <= ids[i]))
            ):
                break
            order[j] = k
            j -= 1
        order[j] = i
    return order

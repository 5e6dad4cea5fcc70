"""The generation layer: at each instant the first active stage of GENERATION_ORDER below the entry span has it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tailtrace import stages
from tailtrace.analytics.attribution.jit import kernel
from tailtrace.analytics.attribution.order import SMALL, argsort_layer

# A stage's place in GENERATION_ORDER, or -1, by its index in the vocabulary.
RANK: Final = np.array(
    [stages.GENERATION_ORDER.index(name) if name in stages.GENERATION_ORDER else -1 for name in stages.NAMES], np.int8
)
# Stages that an engine's attributes or events tell. Those outside the generation layer come after it: they have the
# instants that no generation stage has.
DERIVED_ORDER: Final[tuple[str, ...]] = (
    *stages.GENERATION_ORDER,
    *(stage.name for stage in stages.REQUEST_STAGES if stage.name not in stages.GENERATION_ORDER),
)
DERIVED_RANK: Final = np.array(
    [DERIVED_ORDER.index(name) if name in DERIVED_ORDER else -1 for name in stages.NAMES], np.int8
)


@kernel
def _disjoint(count: int, starts: Any, ends: Any, out_start: Any, out_end: Any, out_item: Any) -> int:
    """`count`, with the intervals in time order, where no two overlap, as in most requests: then ranks decide nothing.
    Less when two do, or when there are too many for a sort by insertion."""
    if count > SMALL:
        return 0
    for i in range(count):
        start, end = starts[i], ends[i]
        j = i
        while j > 0 and out_start[j - 1] > start:
            out_start[j], out_end[j], out_item[j] = out_start[j - 1], out_end[j - 1], out_item[j - 1]
            j -= 1
        if (j > 0 and out_end[j - 1] > start) or (j < i and out_start[j + 1] < end):
            return i
        out_start[j], out_end[j], out_item[j] = start, end, i
    return count


@kernel
def resolve(
    count: int, ranks: Any, starts: Any, ends: Any, ids: Any,
    taken_start: Any, taken_end: Any, taken_item: Any, next_start: Any, next_end: Any, next_item: Any,
) -> int:  # fmt: skip
    """Disjoint pieces, in time order, of the first `count` intervals; returns how many.

    Within a stage an instant belongs to the interval that started first. Pieces name the interval in `taken_item`. The
    taken and next arrays hold at least 2 * count + 1.
    """
    taken = _disjoint(count, starts, ends, taken_start, taken_end, taken_item)
    if taken == count:
        return taken
    order = argsort_layer(ranks, starts, ids, count)
    taken = 0
    i = 0
    while i < count:
        rank = ranks[order[i]]
        added = 0
        old = 0
        cursor = starts[order[i]]
        while i < count and ranks[order[i]] == rank:
            item = order[i]
            i += 1
            at = max(starts[item], cursor)
            end = ends[item]
            if end <= at:
                continue
            cursor = end
            while old < taken and taken_end[old] <= at:
                next_start[added], next_end[added], next_item[added] = taken_start[old], taken_end[old], taken_item[old]
                added += 1
                old += 1
            while at < end:
                if old < taken and taken_start[old] < end:
                    if taken_start[old] > at:
                        next_start[added], next_end[added], next_item[added] = at, taken_start[old], item
                        added += 1
                    at = max(at, taken_end[old])
                    if taken_end[old] > end:
                        break
                    next_start[added], next_end[added], next_item[added] = (
                        taken_start[old],
                        taken_end[old],
                        taken_item[old],
                    )
                    added += 1
                    old += 1
                else:
                    next_start[added], next_end[added], next_item[added] = at, end, item
                    added += 1
                    at = end
        while old < taken:
            next_start[added], next_end[added], next_item[added] = taken_start[old], taken_end[old], taken_item[old]
            added += 1
            old += 1
        taken = added
        for k in range(taken):
            taken_start[k], taken_end[k], taken_item[k] = next_start[k], next_end[k], next_item[k]
    return taken

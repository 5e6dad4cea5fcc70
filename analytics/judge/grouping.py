"""Rows of the inbox by trace: which belong together, in one pass over their ids."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tailtrace.analytics.attribution.jit import kernel


class Grouping(NamedTuple):
    """Traces in order of their ids, by the first eight bytes: what is stored in that order is then made in it.

    trace: the trace of each row. order: rows by trace, in their own order within it; those of trace t are
    order[offsets[t]: offsets[t + 1]]. ids: the 16 bytes of each trace's id (traces x 16).
    """

    trace: Any
    order: Any
    offsets: Any
    ids: Any

    def only(self, chosen: Any) -> Grouping:
        """The chosen traces (a bool each) alone; `trace` is -1 for rows of the others."""
        sizes = np.diff(self.offsets)
        number = np.where(chosen, np.cumsum(chosen) - 1, -1)
        return Grouping(
            number[self.trace],
            self.order[np.repeat(chosen, sizes)],
            np.concatenate(([0], np.cumsum(sizes[chosen]))),
            self.ids[chosen],
        )


def group_rows(column: pa.Array) -> Grouping:
    """The grouping of rows by their trace id (16 bytes each)."""
    raw = np.frombuffer(column.buffers()[1], np.uint8)[16 * column.offset : 16 * (column.offset + len(column))]
    halves = raw.view(np.uint64).reshape(-1, 2).copy()
    trace, first = _numbered(halves, *_SECRETS)
    ids = raw.reshape(-1, 16)[first]
    by_id = np.argsort(ids.view(">u8")[:, 0].astype(np.uint64))
    place = np.empty(len(by_id), np.int64)
    place[by_id] = np.arange(len(by_id))
    trace = place[trace]
    order, offsets = _laid_out(trace, len(ids))
    return Grouping(trace, order, offsets, ids[by_id])


# Whoever sends spans chooses their ids. Without a secret they could choose such as share one place of the table.
_SECRETS: Final = tuple(np.uint64(int.from_bytes(os.urandom(8), "little") | 1) for _ in range(2))


@kernel
def _numbered(halves: Any, secret: Any, other: Any) -> Any:
    """The trace of each row, numbered as they appear, and the first row of each."""
    count = len(halves)
    size = 1024
    slots = np.full(size, -1, np.int64)
    trace = np.empty(count, np.int64)
    first = np.empty(count, np.int64)
    found = 0
    for i in range(count):
        a, b = halves[i, 0], halves[i, 1]
        if i > 0 and halves[i - 1, 0] == a and halves[i - 1, 1] == b:
            trace[i] = trace[i - 1]
            continue
        if 2 * found >= size:
            size *= 4
            slots = np.full(size, -1, np.int64)
            for t in range(found):
                place = _place(halves[first[t], 0] * secret ^ halves[first[t], 1] * other, size)
                while slots[place] >= 0:
                    place = (place + 1) & (size - 1)
                slots[place] = t
        place = _place(a * secret ^ b * other, size)
        while slots[place] >= 0 and (halves[first[slots[place]], 0] != a or halves[first[slots[place]], 1] != b):
            place = (place + 1) & (size - 1)
        t = slots[place]
        if t < 0:
            t = found
            slots[place] = t
            first[t] = i
            found += 1
        trace[i] = t
    return trace, first[:found].copy()


@kernel
def _laid_out(trace: Any, found: int) -> Any:
    """Rows by trace, and where each of the `found` traces starts, with the end."""
    count = len(trace)
    offsets = np.zeros(found + 1, np.int64)
    for i in range(count):
        offsets[trace[i] + 1] += 1
    for t in range(found):
        offsets[t + 1] += offsets[t]
    cursor = offsets[:found].copy()
    order = np.empty(count, np.int64)
    for i in range(count):
        t = trace[i]
        order[cursor[t]] = i
        cursor[t] += 1
    return order, offsets


@kernel
def _place(mixed: Any, size: int) -> int:
    return int(np.int64(mixed * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(32)) & (size - 1))

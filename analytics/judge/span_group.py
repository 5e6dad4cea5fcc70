"""Spans of a batch as a normaliser sees them: the requests of one engine, and the spans below them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tailtrace.analytics.attribution.tree import Forest
from tailtrace.analytics.engines.engine import Floats, Int64s, Mask
from tailtrace.analytics.engines.notes import event_key
from tailtrace.analytics.judge.batch import Batch


class Group:
    """The spans at these positions of a batch."""

    def __init__(self, batch: Batch, at: Any) -> None:
        self.starts: Int64s = batch.starts[at]
        self.ends: Int64s = batch.ends[at]
        self.errors: Mask = batch.errors[at]
        self._attributes = batch.attributes.of(batch.row[at])

    def number(self, key: str) -> Floats:
        return self._attributes.number(key)

    def count(self, key: str) -> Int64s:
        return self._attributes.count(key)

    def text(self, key: str) -> pa.StringArray:
        return self._attributes.text(key)

    def event(self, name: str, occurrence: int = 1) -> tuple[Int64s, Mask]:
        offset = self._attributes.count(event_key(name, occurrence))
        return self.starts + np.maximum(offset, 0), offset >= 0


class Below(Group):
    """Spans below requests; `owner` and `parent` as SpansBelow has them."""

    def __init__(self, batch: Batch, at: Any, owner: Int64s, parent: Int64s) -> None:
        super().__init__(batch, at)
        self.owner = owner
        self.parent = parent


class RequestGroup(Group):
    """The request spans at `at` (ascending), all of the engine with this number."""

    def __init__(self, batch: Batch, forest: Forest, at: Any, engine: int) -> None:
        super().__init__(batch, at)
        self._batch, self._forest, self._at, self._engine = batch, forest, at, engine

    def below(self, wanted: Callable[[str], bool]) -> Below:
        batch, forest = self._batch, self._forest
        named = np.array([wanted(name) for name in batch.name_texts.to_pylist()] or [False], np.bool_)
        inside = np.flatnonzero((batch.engines == self._engine) & forest.kept & named[batch.names])
        owner = self._owners(inside)
        inside, owner = inside[owner >= 0], owner[owner >= 0]
        parent = np.full(len(inside), -1, np.int64)
        if len(inside):
            above = forest.parent[inside]
            found = np.minimum(np.searchsorted(inside, above), len(inside) - 1)
            parent = np.where(inside[found] == above, found, -1)
        return Below(batch, inside, owner, parent)

    def _owners(self, inside: Any) -> Int64s:
        """The innermost request span above each span (itself left out), or -1."""
        place, size = self._forest.place[self._at], self._forest.size[self._at]
        order = np.argsort(place)
        starts, stops = place[order], (place + size)[order]
        where = self._forest.place[inside]
        found = np.searchsorted(starts, where, side="left") - 1
        around = _around(starts, stops)
        missed = (found >= 0) & (where >= stops[np.maximum(found, 0)])
        while missed.any():
            found[missed] = around[found[missed]]
            missed = (found >= 0) & (where >= stops[np.maximum(found, 0)])
        owners: Int64s = np.where(found >= 0, order[np.maximum(found, 0)], -1)
        return owners


def _around(starts: Any, stops: Any) -> Int64s:
    """For subtrees in preorder, the position of the next one outwards, or -1."""
    outer = np.full(len(starts), -1, np.int64)
    if not len(starts) or (stops[:-1] <= starts[1:]).all():
        return outer
    open_ones: list[int] = []
    for k in range(len(starts)):
        while open_ones and stops[open_ones[-1]] <= starts[k]:
            open_ones.pop()
        outer[k] = open_ones[-1] if open_ones else -1
        open_ones.append(k)
    return outer

"""Attributes of many spans, read by key: a map per span becomes a column per key, without a Python object per span."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtrace.analytics.engines.engine import Floats, Int64s

_MAX_INT = 1 << 62


class Attributes:
    """The maps of n spans. Every method gives an array of length n, or as long as the rows chosen by `of`."""

    def __init__(self, maps: pa.MapArray) -> None:
        self._n = len(maps)
        offsets = maps.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        if self._n:
            keys = maps.keys.slice(offsets[0], offsets[-1] - offsets[0])
            self._items = maps.items.slice(offsets[0], offsets[-1] - offsets[0])
        else:
            keys, self._items = maps.keys.slice(0, 0), maps.items.slice(0, 0)
        if not pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_encode()
        codes = keys.indices.to_numpy(zero_copy_only=False)
        self._row = np.repeat(np.arange(self._n), np.diff(offsets)) if self._n else np.zeros(0, np.int64)
        if len(keys.dictionary) < 1 << 15:
            # Sixteen bits are sorted by counting.
            codes = codes.astype(np.int16)
        self._order = np.argsort(codes, kind="stable")
        self._bounds = np.searchsorted(codes[self._order], np.arange(len(keys.dictionary) + 1))
        self._codes = {key: code for code, key in enumerate(keys.dictionary.to_pylist())}
        self._place: Any = None

    def of(self, rows: Any) -> Attributes:
        """The same maps, answering for `rows` (positions, each once) alone."""
        view = copy.copy(self)
        view._place = np.full(len(self._place) if self._place is not None else self._n, -1, np.int64)
        view._place[rows] = np.arange(len(rows))
        view._n = len(rows)
        return view

    def _where(self, key: str) -> tuple[Any, Any]:
        """Rows that have the key, and the positions of their values; of a key given twice the last counts."""
        code = self._codes.get(key)
        if code is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        at = self._order[self._bounds[code] : self._bounds[code + 1]]
        rows = self._row[at]
        if self._place is None:
            return rows, at
        rows = self._place[rows]
        chosen = rows >= 0
        return (rows, at) if chosen.all() else (rows[chosen], at[chosen])

    def has(self, key: str) -> Any:
        found = np.zeros(self._n, np.bool_)
        found[self._where(key)[0]] = True
        return found

    def equals(self, key: str, value: str) -> Any:
        found = np.zeros(self._n, np.bool_)
        rows, at = self._where(key)
        if len(rows):
            found[rows] = pc.equal(self._items.take(pa.array(at)), value).to_numpy(zero_copy_only=False)
        return found

    def text(self, *keys: str) -> pa.StringArray:
        """The first of `keys` that a span has; empty where it has none."""
        position = np.full(self._n, -1, np.int64)
        for key in reversed(keys):
            rows, at = self._where(key)
            position[rows] = at
        if (position < 0).all():
            return pa.StringArray.from_buffers(
                self._n, pa.py_buffer(np.zeros(self._n + 1, np.int32)), pa.py_buffer(b"")
            )
        taken = self._items.take(pa.array(position, mask=position < 0))
        return pc.fill_null(taken, "")

    def number(self, *keys: str) -> Floats:
        """The first of `keys` that a span has, NaN where absent or not a number."""
        out = np.full(self._n, np.nan)
        for key in reversed(keys):
            rows, at = self._where(key)
            if len(rows):
                out[rows] = _numbers(self._items.take(pa.array(at)))
        return out

    def count(self, *keys: str, limit: int = _MAX_INT) -> Int64s:
        """The first of `keys` that a span has, as an integer from 0 to `limit`; -1 where absent or anything else."""
        out = np.full(self._n, -1, np.int64)
        for key in reversed(keys):
            rows, at = self._where(key)
            if len(rows):
                out[rows] = _integers(self._items.take(pa.array(at)), limit)
        return out


def _numbers(texts: pa.Array) -> Floats:
    try:
        return np.asarray(pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        return np.array([_number(text) for text in texts.to_pylist()])


def _integers(texts: pa.Array, limit: int) -> Int64s:
    try:
        values = pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        numbers = [_number(text) for text in texts.to_pylist()]
        values = np.array([int(x) if math.isfinite(x) and abs(x) < _MAX_INT else -1 for x in numbers], np.int64)
    return np.where((values >= 0) & (values <= limit), values, -1)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan

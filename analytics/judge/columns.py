"""Small builders of Arrow columns for the rows of `requests`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def hex_text(raw: Any) -> pa.Array:
    """Lower-case hex of rows of bytes (m x width)."""
    m, width = raw.shape
    digits = np.empty((m, 2 * width), np.uint8)
    digits[:, 0::2] = _HEX[raw >> 4]
    digits[:, 1::2] = _HEX[raw & 15]
    offsets = np.arange(0, (m + 1) * 2 * width, 2 * width, dtype=np.int32)
    return pa.StringArray.from_buffers(m, pa.py_buffer(offsets), pa.py_buffer(digits.reshape(-1)))


def id_hex(ids: Any) -> pa.Array:
    """Span ids (uint64) as 16 hex digits; 0 as an empty text."""
    text = hex_text(ids.astype(">u8").view(np.uint8).reshape(len(ids), 8))
    if (ids == 0).any():
        text = pa.array(np.where(ids == 0, None, text.to_numpy(zero_copy_only=False)), pa.string()).fill_null("")
    return text


def nullable(values: Any, dtype: pa.DataType) -> pa.Array:
    """Integers, null where negative."""
    return pa.array(np.maximum(values, 0), mask=values < 0).cast(dtype)


def timestamps(ns: Any) -> pa.Array:
    """Nanoseconds since 1970 as UTC timestamps."""
    return pa.array(ns, pa.int64()).cast(pa.timestamp("ns", "UTC"))


def repeated(text: str, count: int) -> pa.Array:
    """A constant column, dictionary-encoded."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def coded(codes: Any, texts: pa.Array) -> pa.Array:
    """Texts by code, dictionary-encoded. Equal texts of several codes share one: the store refuses a repeated entry."""
    distinct = texts.dictionary_encode()
    indices = distinct.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices[codes]), distinct.dictionary)


def first_text(*columns: pa.Array) -> pa.Array:
    """The first column's texts, and where empty the next one's."""
    out = _plain(columns[0])
    for column in columns[1:]:
        empty = pa.compute.equal(out, "")
        if not pa.compute.any(empty).as_py():
            return out
        out = pa.compute.if_else(empty, _plain(column), out)
    return out


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary.take(column.indices) if pa.types.is_dictionary(column.type) else column


def lists_of(masks: Sequence[tuple[str, Any]], count: int) -> pa.Array:
    """For each row the names whose mask is set, in the given order."""
    if not masks:
        return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], pa.string()))
    matrix = np.stack([mask for _, mask in masks], axis=1)
    offsets = np.concatenate(([0], np.cumsum(matrix.sum(axis=1)))).astype(np.int32)
    names = pa.array([name for name, _ in masks])
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(matrix)[1])))

"""The stratum of a request: which kind of traffic it is, so that like is compared with like."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

INPUT_TOKENS: Final = (256, 1024, 2048, 8192, 32768)
OUTPUT_TOKENS: Final = (32, 96, 192, 320, 1024)
CACHED_SHARE: Final = (0.0, 0.5)
_UNKNOWN: Final = 255


def bucket(values: Any, edges: Sequence[float], known: Any) -> Any:
    """The first edge that each value does not exceed, as its position; 255 where unknown."""
    return np.where(known, np.searchsorted(np.asarray(edges), values, side="left"), _UNKNOWN).astype(np.uint64)


def load_bucket(per_minute: Any) -> Any:
    """floor(2 log2(arrivals per minute)), offset so that it is not negative; 255 where unknown (NaN)."""
    known = np.isfinite(per_minute) & (per_minute > 0)
    steps = np.floor(2 * np.log2(np.where(known, per_minute, 1.0)))
    return np.where(known, np.clip(steps + 32, 0, 254), _UNKNOWN).astype(np.uint64)


def text_hash(column: pa.Array) -> Any:
    """64 bits of each text that stay the same in every process and release."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    hashes = [
        int.from_bytes(hashlib.blake2b((text or "").encode("utf-8", "replace"), digest_size=8).digest(), "little")
        for text in encoded.dictionary.to_pylist()
    ]
    return np.array(hashes or [0], np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)]


def mix(parts: Sequence[Any]) -> Any:
    """One 64-bit hash of several columns of integers (splitmix64 between them)."""
    state = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        z = (state ^ part.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = z ^ (z >> np.uint64(31))
    return state

"""Times as engines write them, as nanoseconds: the unit belongs to the key and is never guessed from the number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from tailtrace.analytics.engines.engine import Floats, Int64s, Mask

SECOND: Final = 1e9
MILLISECOND: Final = 1e6
_LONGEST_NS: Final = 1e18
_RUST: Final = re.compile(r"^(\d+(?:\.\d+)?)(ns|µs|μs|us|ms|s)$")
_RUST_UNITS: Final = {"ns": 1, "µs": 1_000, "μs": 1_000, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def to_ns(values: Floats, unit_ns: float) -> tuple[Int64s, Mask]:
    """Nanoseconds (0 where unknown), and whether there was a value that is not negative: -1 stands for missing."""
    known = np.isfinite(values) & (values >= 0)
    scaled = np.where(known, values, 0.0) * unit_ns
    known &= scaled < _LONGEST_NS
    return np.rint(np.where(known, scaled, 0.0)).astype(np.int64), known


def rust_duration_ns(text: str) -> int:
    """A `std::time::Duration` in Rust's Debug form ("1.2s", "12.3ms", "45µs", "850ns"); -1 for any other text."""
    match = _RUST.match(text.strip())
    if match is None:
        return -1
    whole, _, part = match[1].partition(".")
    unit = _RUST_UNITS[match[2]]
    fraction = int(part or "0") * unit // 10 ** len(part) if part else 0
    total = int(whole) * unit + fraction
    return total if total < _LONGEST_NS else -1


def rust_durations(texts: Sequence[str]) -> tuple[Int64s, Mask]:
    """`rust_duration_ns` of each text, 0 where unknown, and whether it is known."""
    values = np.array([rust_duration_ns(text) for text in texts], np.int64).reshape(-1)
    return np.maximum(values, 0), values >= 0


def earliest(owner: Int64s, times: Int64s, count: int) -> tuple[Int64s, Mask]:
    """The earliest time by owner (of `count`), and whether it has any."""
    found = np.full(count, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(found, owner, times)
    known = found < np.iinfo(np.int64).max
    return np.where(known, found, 0), known


def latest(owner: Int64s, times: Int64s, count: int) -> tuple[Int64s, Mask]:
    """The latest time by owner (of `count`), and whether it has any."""
    found = np.full(count, -1, np.int64)
    np.maximum.at(found, owner, times)
    return np.maximum(found, 0), found >= 0

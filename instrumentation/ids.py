"""Trace and span ids.

A generator of our own, so that an application's `random.seed(0)` gives no two processes the same ids. It is seeded anew
in a forked child.
"""

from __future__ import annotations

import os
import random

_random = random.Random()
random_bits = _random.getrandbits

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed())


def trace_id() -> bytes:
    """16 random bytes, never all zero."""
    return (_random.getrandbits(128) or 1).to_bytes(16, "big")


def span_id() -> bytes:
    """8 random bytes, never all zero."""
    return (_random.getrandbits(64) or 1).to_bytes(8, "big")


def span_id_block(count: int) -> bytes:
    """`count` span ids drawn at once, one after the other."""
    return _random.randbytes(8 * count)


def seed(value: int | None) -> None:
    """Make the ids repeatable (tests); None makes them random again."""
    _random.seed(value)

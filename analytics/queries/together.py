"""Independent questions asked at the same time: an answer then takes as long as its slowest part, not their sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results in the order of `calls`; the first failure, by that order, is raised once all have ended.

    Each runs in a copy of the caller's context.
    """
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls), thread_name_prefix="query") as pool:
        waiting = [pool.submit(copy_context().run, call) for call in calls]
    return [one.result() for one in waiting]

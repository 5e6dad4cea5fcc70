"""What is kept of a stream's token times: first, last, count, a histogram of the gaps, and the longest stalls.

A token is never a span and never an event. Bucket k holds the gaps in (1.02^(k-1), 1.02^k] nanoseconds, so any
percentile read from it is within one per cent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import sub
from typing import TYPE_CHECKING, Final

from tailtrace.instrumentation import clock
from tailtrace.instrumentation.native import native

BASE: Final = 1.02
# Bucket 1,900 ends after 25 days: no gap of one stream is longer.
_BOUNDS: Final[list[int]] = [int(BASE**k) for k in range(1901)]
MAX_STALLS: Final = 8
STALL_MIN_NS: Final = 20_000_000
STALL_MEDIANS: Final = 4


def bucket(gap_ns: int) -> int:
    """ceil(log_1.02 gap), and 0 for gaps of at most 1 ns."""
    return bisect_left(_BOUNDS, gap_ns)


def histogram(gaps_sorted: Sequence[int]) -> dict[int, int]:
    """Bucket to count, of gaps in ascending order.

    One comparison a gap and one search a distinct bucket: far less than one logarithm a gap.
    """
    counts: dict[int, int] = {}
    k, edge, count = -1, -1, 0
    for gap in gaps_sorted:
        if gap <= edge:
            count += 1
            continue
        if count:
            counts[k] = count
        k = bisect_left(_BOUNDS, gap, k + 1)
        edge = _BOUNDS[k] if k < len(_BOUNDS) else gaps_sorted[-1]
        count = 1
    if count:
        counts[k] = counts.get(k, 0) + count
    return counts


class PlainTokenMarks(list[int]):
    """The marks of one stream that are not folded yet, in the order they came."""

    def mark(self) -> None:
        """A token came now."""
        self.append(clock.now_ns())

    def take(self, count: int) -> PlainTokenMarks:
        """Remove the first `count` marks and give them."""
        taken = PlainTokenMarks(self[:count])
        del self[:count]
        return taken


class PlainTokenTimes:
    """The times of one stream, folded piece by piece so that an endless stream stays small.

    `first_ns` and `last_ns` are clock marks (0 before the first token); `count` is the number of chunks seen.
    """

    __slots__ = ("count", "counts", "first_ns", "last_ns", "stalls")

    def __init__(self) -> None:
        self.first_ns = 0
        self.last_ns = 0
        self.count = 0
        self.counts: dict[int, int] = {}
        self.stalls: list[tuple[int, int]] = []

    def fold(self, times_ns: Sequence[int]) -> None:
        """Take in marks that follow those taken before; non-descending, as one clock gives them."""
        if not times_ns:
            return
        if self.count:
            gaps = list(map(sub, times_ns, [self.last_ns, *times_ns]))
        else:
            self.first_ns = times_ns[0]
            gaps = list(map(sub, times_ns[1:], times_ns))
        self.count += len(times_ns)
        self.last_ns = times_ns[-1]
        if not gaps:
            return
        ordered = sorted(gaps)
        limit = max(STALL_MIN_NS, STALL_MEDIANS * ordered[len(ordered) // 2])
        if ordered[-1] >= limit:
            ends = times_ns[-len(gaps) :]
            long = [(gap, end - gap) for gap, end in zip(gaps, ends, strict=True) if gap >= limit]
            self.stalls = sorted([*self.stalls, *long], reverse=True)[:MAX_STALLS]
        found = histogram(ordered)
        if self.counts:
            for k, count in found.items():
                self.counts[k] = self.counts.get(k, 0) + count
        else:
            self.counts = found

    def gaps_text(self) -> str:
        """`k:n,...` in ascending k."""
        return ",".join([f"{k}:{n}" for k, n in sorted(self.counts.items())])

    def stalls_text(self, start_ns: int) -> str:
        """`offset_ns:length_ns,...` in time order, offsets from `start_ns`."""
        return ",".join([f"{begin - start_ns}:{length}" for length, begin in sorted(self.stalls, key=lambda s: s[1])])


if TYPE_CHECKING or native is None:
    TokenMarks = PlainTokenMarks
    TokenTimes = PlainTokenTimes
else:
    native.use_bounds(_BOUNDS)
    TokenMarks = native.TokenMarks
    TokenTimes = native.TokenTimes

"""Which traces are judged in a round: those that have settled, and those that never seem to.

A trace settles when it has had no span for 2 s and its root is there, or after 10 s without a span. One that has grown
for 30 s without settling is judged as it stands, so that no trace holds up the watermark; later spans re-open it.
Spans that come after their trace was judged wait their 10 s, unless the root is among them: what a round decides must
follow from the inbox alone, so that whoever repeats it decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from tailtrace.analytics.attribution.jit import kernel

QUIET_MS: Final = 2_000
ROOTLESS_MS: Final = 10_000
GROWING_MS: Final = 30_000
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows of the inbox: the trace each belongs to (codes below `traces`), when and in which block it came."""

    trace: Any
    traces: int
    received_ms: Any
    block: Any
    is_root: Any


@dataclass(frozen=True, slots=True)
class Decision:
    """By trace: `judge` now; `grows` while judged; still `open`, with the first block and time not judged."""

    judge: Any
    grows: Any
    open: Any
    open_block: Any
    open_ms: Any


def decide(arrived: Arrived, cursor: int, before_ms: int, now_ms: int, judged_block: Any) -> Decision:
    """What to do with each trace now, given that blocks up to `cursor` were looked at as of `before_ms`.

    judged_block: by trace, the block up to which a growing trace has been judged; 0 for all others.
    """
    fresh = arrived.block > judged_block[arrived.trace]
    looked_at = arrived.block <= cursor
    before = _seen(arrived, fresh & looked_at, arrived.is_root & looked_at)
    now = _seen(arrived, fresh, arrived.is_root)
    done = before.any & before.settled(before_ms)
    unjudged = now.any & ~(done & (now.last_block <= cursor))
    settled = now.settled(now_ms)
    grows = unjudged & ~settled & (now.first_ms <= now_ms - GROWING_MS)
    judge = unjudged & (settled | grows)
    still = unjudged & ~judge
    return Decision(
        judge, grows, still, np.where(still, now.first_block, _NEVER), np.where(still, now.first_ms, _NEVER)
    )


class _Seen(NamedTuple):
    """First and last arrival by trace, over some of the rows."""

    any: Any
    rooted: Any
    first_ms: Any
    last_ms: Any
    first_block: Any
    last_block: Any

    def settled(self, as_of_ms: int) -> Any:
        return np.where(self.rooted, self.last_ms <= as_of_ms - QUIET_MS, self.last_ms <= as_of_ms - ROOTLESS_MS)


def _seen(arrived: Arrived, rows: Any, roots: Any) -> _Seen:
    return _Seen(*_extremes(arrived.trace, arrived.traces, arrived.received_ms, arrived.block, rows, roots))


@kernel
def _extremes(trace: Any, traces: int, received: Any, block: Any, rows: Any, roots: Any) -> Any:
    seen = np.zeros(traces, np.bool_)
    rooted = np.zeros(traces, np.bool_)
    first_ms, last_ms = np.full(traces, _NEVER, np.int64), np.full(traces, -1, np.int64)
    first_block, last_block = np.full(traces, _NEVER, np.int64), np.zeros(traces, np.int64)
    for i in range(len(trace)):
        t = trace[i]
        if roots[i]:
            rooted[t] = True
        if rows[i]:
            seen[t] = True
            first_ms[t] = min(first_ms[t], received[i])
            last_ms[t] = max(last_ms[t], received[i])
            first_block[t] = min(first_block[t], block[i])
            last_block[t] = max(last_block[t], block[i])
    return seen, rooted, first_ms, last_ms, first_block, last_block

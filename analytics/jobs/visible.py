"""Up to which block of the inbox nothing can appear any more, however many receivers insert.

A plain table draws the number of a block and shows the block under one lock, so blocks appear in the order of their
numbers. A replicated one draws the number first and shows the block after a round of its keeper: a lower number may
appear behind a higher one. There a block counts once it, or a later one, has been seen for ten seconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tailtrace.ingest.store import Store

HELD_S: Final = 10.0
EVERYTHING: Final = (1 << 63) - 1
_ENGINE: Final = "SELECT engine FROM system.tables WHERE database = currentDatabase() AND name = 'span_inbox'"
_NEWEST: Final = (
    "SELECT max(_block_number) AS n FROM span_inbox WHERE Received >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')"
)


class Visible:
    """What one worker has seen, and when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._replicated: bool | None = None
        self._seen: deque[tuple[float, int]] = deque()
        self._held = 0

    def up_to(self, store: Store, since_ms: int) -> int:
        """The last block number that may be taken now."""
        if self._replicated is None:
            rows = store.query(_ENGINE, role="jobs")
            self._replicated = bool(rows) and str(rows[0]["engine"]).startswith("Replicated")
        if not self._replicated:
            return EVERYTHING
        now = self._clock()
        while self._seen and now - self._seen[0][0] >= HELD_S:
            self._held = self._seen.popleft()[1]
        newest = int(store.query(_NEWEST, {"since": since_ms}, role="jobs")[0]["n"])
        if newest > (self._seen[-1][1] if self._seen else self._held):
            self._seen.append((now, newest))
        return self._held

"""When the jobs are enqueued: often while there is news, rarely else, never twice at once.

The jobs find their windows in the store, so a tick carries nothing and a lost one costs nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Ticker:
    """Enqueues the jobs: each second while data comes in and until it has settled, else rarely."""

    def __init__(
        self,
        enqueue: Callable[[], None],
        progress: Callable[[], object],
        *,
        busy_s: float = 1.0,
        idle_s: float = 15.0,
        settle_s: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`progress` gives any value that differs once there is something new to judge."""
        self._enqueue = enqueue
        self._progress = progress
        self._busy_s, self._idle_s, self._settle_s = busy_s, idle_s, settle_s
        self._clock = clock
        self._seen: object = None
        self._changed_at = clock()
        self._enqueued_at = float("-inf")
        self._outstanding_since: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tailtrace-ticker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        self._stop.set()
        self._thread.join(timeout_s)

    def finished(self) -> None:
        """A round has ended, well or badly: the next one may be enqueued."""
        self._outstanding_since = None

    def tick(self) -> bool:
        """Enqueue a round if one is due and none is waiting; says whether it did."""
        now = self._clock()
        seen = self._progress()
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
        waiting = self._outstanding_since is not None and now - self._outstanding_since < _LOST_S
        interval = self._busy_s if now - self._changed_at < self._settle_s else self._idle_s
        if waiting or now - self._enqueued_at < interval:
            return False
        self._enqueued_at = self._outstanding_since = now
        self._enqueue()
        return True

    def _run(self) -> None:
        while not self._stop.wait(self._busy_s / 2):
            try:
                self.tick()
            except Exception:
                log.exception("the jobs could not be enqueued")


_LOST_S = 600.0
"""A round that has not ended after this long is taken as lost with its worker."""

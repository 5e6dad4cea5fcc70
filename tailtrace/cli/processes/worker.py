"""The Celery worker inside the owner: same application, same tasks as a worker of its own."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

log = logging.getLogger(__name__)


class EmbeddedWorker:
    """A Celery worker on threads of this process: no signal handlers, no banner, stdout left alone."""

    def __init__(self, app: Any, *, threads: int = 2) -> None:
        app.conf.worker_redirect_stdouts = False
        app.conf.worker_hijack_root_logger = False
        self._worker = app.WorkController(
            pool="threads",
            concurrency=threads,
            loglevel="WARNING",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        self._thread = threading.Thread(target=self._run, name="tailtrace-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, timeout_s: float) -> None:
        """Take no more, and let the task in hand finish. A worker without one is left asleep on its queue."""
        from celery.worker import state

        state.should_stop = 0
        deadline = time.monotonic() + timeout_s
        while state.active_requests and time.monotonic() < deadline:
            time.sleep(0.02)
        if state.active_requests:
            # It will find its store closed, which is no news; the next start takes up where it was.
            logging.getLogger("celery.app.trace").setLevel(logging.CRITICAL)
            log.info("a job was not done in time and is left: the next start takes it up")

    def _run(self) -> None:
        try:
            self._worker.start()
        except BaseException as error:  # WorkerShutdown is a SystemExit
            log.debug("worker ended: %r", error)

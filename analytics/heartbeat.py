"""A file whose age tells whether a worker or a beat does its work.

Celery's own `inspect ping` starts a whole Celery for each question, and asks over the broker. A worker sends its
heartbeat every two seconds while it is connected to the broker, and a beat's loop turns each second: both leave a mark.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from celery.beat import Scheduler
from celery.signals import heartbeat_sent

from tailtrace.ingest.settings import ServerSettings

log = logging.getLogger(__name__)


def mark(path: Path | None) -> None:
    """Renews the file's time; a file system that refuses only makes its owner look dead."""
    if path is None:
        return
    try:
        path.touch()
    except OSError as error:
        log.warning("the heartbeat cannot be left in %s: %s", path, error)


@heartbeat_sent.connect  # type: ignore[untyped-decorator]
def mark_worker(**_: Any) -> None:
    """A worker is connected and consumes."""
    mark(ServerSettings().heartbeat_file)


class MarkingScheduler(Scheduler):  # type: ignore[misc]
    """Celery's scheduler in memory, which marks each turn of beat's loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._heartbeat = ServerSettings().heartbeat_file
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Seconds until the next task is due."""
        wait_s: float = super().tick(*args, **kwargs)
        mark(self._heartbeat)
        return wait_s

"""The background jobs of an owner: worker and tickers together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailtrace.cli.processes.ticker import Ticker
from tailtrace.cli.processes.worker import EmbeddedWorker

if TYPE_CHECKING:
    from tailtrace.ingest.settings import ServerSettings
    from tailtrace.ingest.store import Store

log = logging.getLogger(__name__)

_STOP_S = 1.5


class Jobs:
    """Runs the tasks of `tailtrace.analytics.celery_app` on this process's store."""

    def __init__(self, store: Store, settings: ServerSettings, progress: Callable[[], object]) -> None:
        """`progress` gives any value that differs once there is something new to judge."""
        from celery.signals import task_postrun

        from tailtrace.analytics import celery_app

        celery_app.use_store(store, settings)
        celery_app.app.conf.broker_transport_options = {
            **celery_app.app.conf.broker_transport_options,
            "polling_interval": 0.25,  # the in-memory queue is looked at this often; its default is once a second
        }
        self._worker = EmbeddedWorker(celery_app.app)
        self._tickers = {
            celery_app.requests.name: Ticker(_enqueue(celery_app.requests), progress, busy_s=celery_app.TICK_S),
            celery_app.verdicts.name: Ticker(
                _enqueue(celery_app.verdicts), progress, busy_s=celery_app.VERDICTS_S, idle_s=600
            ),
            celery_app.trim.name: Ticker(_enqueue(celery_app.trim), progress, busy_s=celery_app.TRIM_S, idle_s=600),
            celery_app.retention.name: Ticker(
                _enqueue(celery_app.retention), progress, busy_s=celery_app.TRIM_S, idle_s=3_600
            ),
            celery_app.changes.name: Ticker(
                _enqueue(celery_app.changes), progress, busy_s=celery_app.ALERTS_S, idle_s=120
            ),
            celery_app.alerts.name: Ticker(
                _enqueue(celery_app.alerts), progress, busy_s=celery_app.ALERTS_S, idle_s=60
            ),
            celery_app.outbox.name: Ticker(
                _enqueue(celery_app.outbox), progress, busy_s=celery_app.OUTBOX_S, idle_s=15
            ),
        }
        task_postrun.connect(self._finished, weak=False)

    def start(self) -> None:
        self._worker.start()
        for ticker in self._tickers.values():
            ticker.start()

    def stop(self) -> None:
        for ticker in self._tickers.values():
            ticker.stop()
        self._worker.stop(_STOP_S)

    def _finished(self, task: Any = None, **_: Any) -> None:
        ticker = self._tickers.get(getattr(task, "name", ""))
        if ticker is not None:
            ticker.finished()


def _enqueue(task: Any) -> Callable[[], None]:
    return lambda: task.apply_async(ignore_result=True)

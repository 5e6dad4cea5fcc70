"""The Celery application: `celery -A tailtrace.analytics.celery_app worker -P threads`, or embedded in the owner.

A task carries nothing: jobs find their windows in the store, so a tick that comes twice, late or never changes nothing
but the delay. Nobody waits for a result, so none is kept.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, ClassVar, Final

from celery import Celery, Task
from celery.signals import worker_init

from tailtrace.analytics import heartbeat  # noqa: F401 - its signal
from tailtrace.analytics.alerting import book
from tailtrace.analytics.jobs.alerts import run_alerts
from tailtrace.analytics.jobs.changes import run_changes
from tailtrace.analytics.jobs.outbox import run_outbox
from tailtrace.analytics.jobs.requests import JobReport, run_requests
from tailtrace.analytics.jobs.trim import trim_inbox
from tailtrace.analytics.jobs.verdicts import run_verdicts
from tailtrace.errors import ConfigError, StoreError
from tailtrace.ingest.retention import enforce
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store

log = logging.getLogger(__name__)

TIME_LIMIT_S: Final = 300
VISIBILITY_TIMEOUT_S: Final = 3600
TICK_S: Final = 2.5
TRIM_S: Final = 60.0
ALERTS_S: Final = 15.0
OUTBOX_S: Final = 5.0
VERDICTS_S: Final = 30.0
# Rounds that one task may run to catch up before it lets others have the worker.
MAX_ROUNDS: Final = 20

# A store that is gone is gone for each tick; it is said this often.
TOLD_S: Final = 60.0

_store: Store | None = None
_settings: ServerSettings | None = None
_lock = threading.Lock()


def use_store(store: Store | None, settings: ServerSettings | None = None) -> None:
    """Store and settings of this process's tasks; the owner of an embedded one hands them over before it starts."""
    global _store, _settings
    _store, _settings = store, settings


def current_store() -> Store:
    """The store handed over, else the ClickHouse server that the settings name."""
    global _store
    with _lock:
        if _store is None:
            settings = ServerSettings()
            if not settings.clickhouse_url:
                raise ConfigError(
                    "a worker of its own needs a ClickHouse server: set TAILTRACE_CLICKHOUSE_URL "
                    "(the embedded database belongs to the process that `tailtrace up` starts, with a worker inside)"
                )
            _store = open_store(settings)
        return _store


class _Job(Task):  # type: ignore[misc]
    """A task whose store may be gone or full: that is told in a line, with no traceback, and the next tick tries
    again."""

    throws = (StoreError,)
    _told_s: ClassVar[dict[str, float]] = {}

    def on_failure(self, exc: Exception, *rest: Any) -> None:
        """See celery.Task."""
        now = time.monotonic()
        if isinstance(exc, StoreError) and now - self._told_s.get(self.name, -TOLD_S) >= TOLD_S:
            self._told_s[self.name] = now
            log.warning("%s did not work and is tried again at its next tick: %s", self.name, exc)


def create_app(broker_url: str) -> Celery:
    """The application on a broker; an empty URL is a queue in this process's memory."""
    made = Celery("tailtrace", broker=broker_url or "memory://", task_cls=_Job)
    made.conf.update(
        result_backend=None,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_time_limit=TIME_LIMIT_S,
        task_soft_time_limit=TIME_LIMIT_S - 30,
        task_acks_late=False,
        task_default_queue="tailtrace",
        worker_redirect_stdouts=False,
        worker_hijack_root_logger=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": VISIBILITY_TIMEOUT_S} if broker_url else {},
        # A tick that has waited longer than this is worth nothing: the next one does its work.
        beat_schedule={
            "requests": {"task": "tailtrace.requests", "schedule": TICK_S, "options": {"expires": 10 * TICK_S}},
            "verdicts": {"task": "tailtrace.verdicts", "schedule": VERDICTS_S, "options": {"expires": VERDICTS_S}},
            "changes": {"task": "tailtrace.changes", "schedule": ALERTS_S, "options": {"expires": ALERTS_S}},
            "alerts": {"task": "tailtrace.alerts", "schedule": ALERTS_S, "options": {"expires": ALERTS_S}},
            "outbox": {"task": "tailtrace.outbox", "schedule": OUTBOX_S, "options": {"expires": OUTBOX_S}},
            "trim": {"task": "tailtrace.trim", "schedule": TRIM_S, "options": {"expires": TRIM_S}},
            "retention": {"task": "tailtrace.retention", "schedule": TRIM_S, "options": {"expires": TRIM_S}},
        },
        timezone="UTC",
    )
    return made


app: Final = create_app(ServerSettings().broker_url)


@app.task(name="tailtrace.requests")  # type: ignore[untyped-decorator]
def requests(lane: int = 0, lanes: int = 1) -> None:
    """Judges what has settled, in as many rounds as it takes to catch up, within a bound."""
    catch_up(current_store(), lane=lane, lanes=lanes)


@app.task(name="tailtrace.trim")  # type: ignore[untyped-decorator]
def trim() -> None:
    """Frees the inbox behind the watermark."""
    trim_inbox(current_store())


@app.task(name="tailtrace.retention")  # type: ignore[untyped-decorator]
def retention() -> None:
    """Drops the oldest telemetry beyond the budget and the age that the settings give."""
    enforce(current_store(), _settings or ServerSettings())


@app.task(name="tailtrace.verdicts")  # type: ignore[untyped-decorator]
def verdicts() -> None:
    """Judges windows that have finished, a few at a time."""
    run_verdicts(current_store())


@app.task(name="tailtrace.changes")  # type: ignore[untyped-decorator]
def changes() -> None:
    """Judges series that have news."""
    run_changes(current_store(), zone=(_settings or ServerSettings()).time_zone)


@app.task(name="tailtrace.alerts")  # type: ignore[untyped-decorator]
def alerts() -> None:
    """Holds the rules against what is stored, and puts messages into the outbox."""
    run_alerts(current_store(), _settings or ServerSettings())


@app.task(name="tailtrace.outbox")  # type: ignore[untyped-decorator]
def outbox() -> None:
    """Sends what is due."""
    settings = _settings or ServerSettings()
    run_outbox(current_store(), book.load(current_store(), settings.alerts_file).channels, time.time_ns() // 1_000_000)


def catch_up(store: Store, *, lane: int = 0, lanes: int = 1, max_rounds: int = MAX_ROUNDS) -> JobReport:
    """Rounds of the `requests` job until none is waiting, at most `max_rounds`."""
    total = JobReport()
    for _ in range(max_rounds):
        report = run_requests(store, lane=lane, lanes=lanes)
        total = total.plus(report)
        if not report.behind:
            break
    return total


@worker_init.connect  # type: ignore[untyped-decorator]
def refuse_fork(sender: Any = None, **_: Any) -> None:
    """The prefork pool forks, and neither the engine nor the memory of rounds survives that."""
    pool = str(getattr(sender, "pool_cls", ""))
    if "prefork" in pool or "processes" in pool:
        raise SystemExit(
            "tailtrace jobs run on threads: start the worker with -P threads (prefork forks, which hangs chdb)"
        )

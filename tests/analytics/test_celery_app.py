"""The Celery application: safe settings, tasks that find their own work, no prefork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailtrace.analytics import celery_app
from tailtrace.errors import ConfigError, StoreError
from tailtrace.ingest.store import Store
from tests.analytics.feed import feed, store_now_ms
from tests.analytics.test_requests_job import request


def test_nothing_is_kept_for_results_and_limits_agree() -> None:
    conf = celery_app.create_app("redis://localhost:1/0").conf
    assert (conf.result_backend, conf.task_ignore_result, conf.worker_redirect_stdouts) == (None, True, False)
    assert conf.task_time_limit < conf.broker_transport_options["visibility_timeout"]
    assert celery_app.create_app("").conf.broker_url == "memory://"


def test_a_tick_judges_what_has_settled(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(store, tmp_path, request(7))
    later = store_now_ms(store) + 3_000
    plain = celery_app.run_requests
    monkeypatch.setattr(celery_app, "run_requests", lambda *a, **k: plain(*a, now_ms=later, **k))
    celery_app.use_store(store)
    try:
        for _ in range(2):
            celery_app.requests.apply()
            celery_app.trim.apply()
    finally:
        celery_app.use_store(None)
    assert store.query("SELECT count() AS n FROM requests") == [{"n": 1}]


def test_a_store_that_is_full_is_said_once_and_without_a_traceback(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(celery_app, "run_requests", full)
    monkeypatch.setattr(celery_app._Job, "_told_s", {})
    celery_app.use_store(store)
    try:
        for _ in range(3):
            celery_app.requests.apply()
    finally:
        celery_app.use_store(None)
    loud = [record for record in caplog.records if record.levelname in {"WARNING", "ERROR", "CRITICAL"}]
    assert [record.getMessage() for record in loud] == [
        "tailtrace.requests did not work and is tried again at its next tick: no space left"
    ]
    assert not loud[0].exc_info


def test_a_fault_of_a_job_is_logged_whole(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(celery_app, "current_store", lambda: 1 / 0)
    celery_app.requests.apply()
    assert [record.levelname for record in caplog.records if "ZeroDivisionError" in record.getMessage()] == ["ERROR"]


def test_a_worker_of_its_own_needs_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILTRACE_CLICKHOUSE_URL", raising=False)
    celery_app.use_store(None)
    with pytest.raises(ConfigError, match="TAILTRACE_CLICKHOUSE_URL"):
        celery_app.current_store()


def test_prefork_is_refused_with_advice(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "celery", "-A", "tailtrace.analytics.celery_app", "worker", "-P", "prefork"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert run.returncode != 0
    assert "-P threads" in run.stderr

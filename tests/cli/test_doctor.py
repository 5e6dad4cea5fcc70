"""`doctor` against servers that are not what it expects: it always says so and never breaks itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailtrace.cli.checks import server
from tailtrace.version import VERSION

Run = Callable[..., Any]
PAGE = (200, {"content-type": "text/html; charset=utf-8"}, b"<!DOCTYPE html>\n<html>\n</html>")


def answers(stub: Any) -> None:
    stub.json("/healthz", {"status": "ok", "version": VERSION, "uptime_s": 1.0})
    stub.answers["/readyz"] = [(200, {"content-type": "application/json"}, b"{}")]


def test_a_server_without_metrics_has_absent_figures(tailtrace: Run, stub: Any) -> None:
    answers(stub)
    stub.answers["/metrics"] = [PAGE]  # a release whose every unknown path is a page
    outcome = tailtrace("doctor", "--url", stub.url, "--endpoint", "http://127.0.0.1:9")
    assert outcome.code == 1  # nobody listens at the OTLP door
    assert "absent: this release of the server has no /metrics" in outcome.out
    assert "Traceback" not in outcome.err


def test_a_check_that_breaks_is_a_finding_and_the_others_run(
    tailtrace: Run, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> object:
        raise ZeroDivisionError("nobody foresaw this")

    answers(stub)
    stub.answers["/metrics"] = [(200, {"content-type": "text/plain"}, b"tailtrace_pipeline_journal_bytes 0\n")]
    monkeypatch.setattr(server, "_ready", breaks)
    outcome = tailtrace("doctor", "--url", stub.url, "--endpoint", "http://127.0.0.1:9")
    assert outcome.code == 1
    assert "failed itself: ZeroDivisionError: nobody foresaw this" in outcome.out
    assert "0.0 MB wait in the journal" in outcome.out


def test_the_otlp_port_is_not_the_dashboard(tailtrace: Run, stub: Any) -> None:
    stub.answers["/api/v1/requests"] = [(404, {"content-type": "text/plain"}, b"Not Found")]
    outcome = tailtrace("requests", "--url", stub.url)
    assert outcome.code == 1
    assert "address of the dashboard, not of an OTLP port" in outcome.err


LINES = {
    "tailtrace_pipeline_stored_items_per_second": "1200.5",
    "tailtrace_pipeline_journal_bytes": "2500000",
    'tailtrace_job_lag_seconds{job="requests"}': "3",
    'tailtrace_table_parts{table="otel_traces"}': "40",
    'tailtrace_client_dropped_items_total{reason="queue_full"}': "7",
}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {},
            "1,200 items/s stored, 2.5 MB wait in the journal, jobs are 3 s behind, "
            "at most 40 parts in a table, 7 items",
        ),
        ({'tailtrace_job_lag_seconds{job="requests"}': "500"}, "the jobs do not keep up"),
        ({'tailtrace_table_parts{table="otel_traces"}': "2500"}, "merges do not keep up"),
        ({"tailtrace_pipeline_refused_bodies_total": "1"}, "see refused/"),
    ],
)
def test_the_figures_are_read(tailtrace: Run, stub: Any, changed: dict[str, str], words: str) -> None:
    answers(stub)
    stub.answers["/readyz"] = [(200, {}, b'{"status": "ready", "lag_s": {"requests": 3.2}}')]
    page = "".join(f"{name} {value}\n" for name, value in {**LINES, **changed}.items())
    stub.answers["/metrics"] = [(200, {"content-type": "text/plain"}, page.encode())]
    outcome = tailtrace("doctor", "--url", stub.url, "--endpoint", "http://127.0.0.1:9")
    assert words in outcome.out
    assert "requests is 3 s behind" in outcome.out
    assert ("FAIL  figures" in outcome.out) == bool(changed)

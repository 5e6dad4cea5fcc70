"""Celery with a broker in memory and a real worker: one path from the publisher's request to the end of the task."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from tailtrace.instrumentation import request, stage
from tailtrace.instrumentation.engines import celery as hook
from tailtrace.instrumentation.testing import captured


@pytest.fixture(scope="module")
def tasks() -> Iterator[Any]:
    app = Celery("tasks", broker="memory://", backend="cache+memory://")
    app.conf.update(worker_hijack_root_logger=False, task_store_errors_even_if_ignored=True)

    @app.task(name="tests.summarise")
    def summarise(text: str) -> int:
        with stage("forward"):
            return len(text)

    @app.task(name="tests.fail")
    def fail() -> None:
        raise LookupError("a secret")

    hook.watch_celery()
    hook.watch_celery()
    level = logging.getLogger().level
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
        yield app.tasks
    logging.getLogger().setLevel(level)  # a worker sets it to its own


def spans_of(call: Any, *arguments: Any) -> tuple[Any, dict[str, Any]]:
    with captured() as spans:
        with request("publish"):
            call.delay(*arguments).wait(timeout=30, interval=0.01, propagate=False)
        # The task's end is told after its result.
        for _ in range(200):
            if any(span.name == call.name for span in spans()):
                break
            threading.Event().wait(0.01)
        return spans(), {span.name: span for span in spans()}


def test_a_task_is_one_path_from_its_publishing_to_its_end(tasks: Any) -> None:
    spans, by_name = spans_of(tasks["tests.summarise"], "abc")
    assert sorted(by_name) == ["admission", "dispatch", "forward", "publish", "queue", "tests.summarise"]
    assert len(spans) == len(by_name)
    task, publisher = by_name["tests.summarise"], by_name["publish"]
    assert {span.trace_id for span in spans} == {publisher.trace_id}
    assert task.parent_span_id == publisher.span_id == by_name["dispatch"].parent_span_id
    assert by_name["queue"].parent_span_id == by_name["forward"].parent_span_id == task.span_id
    queue, admission = by_name["queue"], by_name["admission"]
    assert task.start_unix_ns == queue.start_unix_ns
    assert queue.end_unix_ns == admission.start_unix_ns
    assert admission.end_unix_ns <= by_name["forward"].start_unix_ns
    assert task.attributes["tailtrace.outcome"] == "ok"
    assert task.attributes["tailtrace.request_id"]


def test_a_failed_task_says_the_error_s_kind_alone(tasks: Any) -> None:
    _, by_name = spans_of(tasks["tests.fail"])
    task = by_name["tests.fail"]
    assert task.attributes["tailtrace.outcome"] == "error"
    assert task.attributes["error.type"] == "LookupError"
    assert "secret" not in str(task.attributes)


@pytest.mark.parametrize("text", [None, 5, "", "-1", "soon", "9" * 400, "1"])
def test_times_that_nobody_can_believe_are_none(text: Any) -> None:
    now = 10**18
    assert hook._mark(text, now) in {0, now}

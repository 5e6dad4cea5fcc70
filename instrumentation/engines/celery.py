"""Celery: a task is a request of the worker, from its publishing on: queue (at the broker), admission (fetched, and not
begun yet), its run; the publisher's request has the publishing as dispatch and is its parent.

Only Celery's signals are used. What the trace needs travels in the message's headers.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.context import Entered, extract, inject
from tailtrace.instrumentation.engines.patch import fault, hooked
from tailtrace.instrumentation.otlp import SERVER
from tailtrace.instrumentation.outcome import of_exception
from tailtrace.instrumentation.record import CURRENT, Outcome, Record, live
from tailtrace.instrumentation.run.process import record_here
from tailtrace.instrumentation.stage import stage_from

SENT: Final = "tailtrace_sent"
RECEIVED: Final = "tailtrace_received"
_LONGEST_NS: Final = 7 * 86_400_000_000_000
_OUTCOMES: Final[dict[str, Outcome]] = {"SUCCESS": "ok", "IGNORED": "cancelled", "REVOKED": "cancelled"}

_publishing = threading.local()
_connected = False
_starts = False


def watch_celery() -> None:
    """Record this process's Celery tasks and those that it publishes; call it beside `instrument()`, in workers and in
    what publishes alike. A second call changes nothing. `tailtrace run -- celery ...` does so itself.
    """
    global _connected
    if _connected:
        return
    _connected = True
    from celery import signals

    for signal, receiver in (
        (signals.before_task_publish, _before_publish), (signals.after_task_publish, _after_publish),
        (signals.task_received, _received), (signals.task_prerun, _begin), (signals.task_postrun, _end),
        (signals.worker_process_shutdown, _flush), (signals.worker_shutdown, _flush),
    ):  # fmt: skip
        signal.connect(receiver, weak=False)


def hook(module: Any) -> None:
    """Under `tailtrace run`: a process that runs or publishes tasks begins to record."""
    global _starts
    _starts = True
    watch_celery()
    hooked.setdefault("celery", []).append("signals")


def _before_publish(headers: Any = None, **_: Any) -> None:
    try:
        _publishing.start_ns = clock.now_ns()
        if isinstance(headers, dict) and runtime.active is not None:
            inject(headers)
            headers[SENT] = str(_publishing.start_ns + clock.anchor_ns())
    except Exception:
        fault("before_task_publish")


def _after_publish(**_: Any) -> None:
    try:
        start_ns = getattr(_publishing, "start_ns", 0)
        if start_ns and runtime.active is not None and live(CURRENT.get()) is not None:
            stage_from(start_ns, "dispatch")
    except Exception:
        fault("after_task_publish")


def _received(request: Any = None, **_: Any) -> None:
    """In the worker's own process; what it runs in, a process or thread of its pool, gets the same dictionary."""
    try:
        request.request_dict[RECEIVED] = str(clock.now_ns() + clock.anchor_ns())
    except Exception:
        fault("task_received")


def _begin(task: Any = None, **_: Any) -> None:
    try:
        if _starts:
            record_here("worker", service_name="celery")
        active = runtime.active
        if active is None or task.request.is_eager:
            return
        now_ns = clock.now_ns()
        said = {name: task.request.get(name) for name in ("traceparent", "tracestate", SENT, RECEIVED)}
        sent_ns, received_ns = (_mark(said[name], now_ns) for name in (SENT, RECEIVED))
        received_ns = max(received_ns, sent_ns) if received_ns else 0
        parent = extract({name: value for name, value in said.items() if value})
        record = Record(task.name, SERVER, parent, active.sample, sent_ns or received_ns or now_ns)
        record.set("messaging.system", "celery")
        record.set("request_id", task.request.id)
        if task.request.retries:
            record.set("attempts", task.request.retries + 1)
        if sent_ns:
            record.mark("queue", sent_ns, received_ns or now_ns)
        if received_ns:
            record.mark("admission", received_ns, now_ns)
        task.request.tailtrace = record, Entered(record)
    except Exception:
        fault("task_prerun")


def _mark(text: Any, now_ns: int) -> int:
    """A wall time in ns as a mark of this process's clock, never after now; 0 where it says nothing believable."""
    if not isinstance(text, str) or not text.isdecimal():
        return 0
    at_ns = min(int(text) - clock.anchor_ns(), now_ns)
    return at_ns if at_ns > max(0, now_ns - _LONGEST_NS) else 0


def _end(task: Any = None, state: str | None = None, retval: Any = None, **_: Any) -> None:
    try:
        begun = task.request.get("tailtrace")
        if begun is None:
            return
        task.request.tailtrace = None
        record, entered = begun
        entered.leave()
        if isinstance(retval, BaseException) and state not in _OUTCOMES:
            record.finish(of_exception(type(retval)), error=type(retval).__name__)
        else:
            record.finish(_OUTCOMES.get(state or "", "error"))
    except Exception:
        fault("task_postrun")


def _flush(**_: Any) -> None:
    try:
        if runtime.active is not None:
            runtime.flush(2.0)
    except Exception:
        fault("worker_shutdown")

"""`wrap_scheduler(s)`: how long a request waits to be taken up, and the steps of what takes it up.

Two kinds of objects: queues (`queue.Queue`, `asyncio.Queue` and their relatives) give `queue`; schedulers with hooks to
add, schedule and finish give `queue`, `preempted` and one step a call of schedule.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final

from tailtrace.errors import ConfigError
from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.context import current_scope
from tailtrace.instrumentation.record import Scope
from tailtrace.instrumentation.stage import stage_from
from tailtrace.instrumentation.steps import record_step

_ADD: Final = ("add_request", "add", "submit", "enqueue")
_SCHEDULE: Final = ("schedule", "get_next_batch_to_run", "next_batch")
_FINISH: Final = ("finish_requests", "finish_request", "finish", "free_request", "abort_request", "abort")
_ID: Final = ("request_id", "rid", "id")
_MAX_KNOWN: Final = 65_536


def wrap_scheduler(scheduler: Any) -> Any:
    """Watch a queue or a scheduler; gives the same object back.

    A queue gets a method `scope_of(item)`: `with joined(q.scope_of(item)):` makes the taker part of the item's request.
    Raises ConfigError for an object with neither kind of hooks.
    """
    if getattr(scheduler, "__tailtrace__", False):
        return scheduler
    if hasattr(scheduler, "_put") and hasattr(scheduler, "_get"):
        _watch_queue(scheduler)
    else:
        add = _first(scheduler, _ADD)
        schedule = _first(scheduler, _SCHEDULE)
        if add is None or schedule is None:
            raise ConfigError(
                f"wrap_scheduler: expected a queue, or an object with one of {', '.join(_ADD)} and one of "
                f"{', '.join(_SCHEDULE)}; got {type(scheduler).__name__}"
            )
        _Watch(scheduler, add, schedule, _first(scheduler, _FINISH))
    scheduler.__tailtrace__ = True
    return scheduler


def _first(scheduler: Any, names: Iterable[str]) -> str | None:
    return next((name for name in names if callable(getattr(scheduler, name, None))), None)


def _watch_queue(queue: Any) -> None:
    """`_put` and `_get` are where both standard queues really enter and take out an item, under their own lock."""
    put, get = queue._put, queue._get
    waiting: dict[int, deque[tuple[int, Scope]]] = {}
    taken: OrderedDict[int, Scope] = OrderedDict()

    def watched_put(item: Any) -> None:
        put(item)
        if runtime.active is not None:
            scope = current_scope()
            if scope is not None and len(waiting) < _MAX_KNOWN:
                waiting.setdefault(id(item), deque()).append((clock.now_ns(), scope))

    def watched_get() -> Any:
        item = get()
        entered = waiting.get(id(item))
        if entered:
            start_ns, scope = entered.popleft()
            if not entered:
                del waiting[id(item)]
            stage_from(start_ns, "queue", scope=scope)
            taken[id(item)] = scope
            if len(taken) > _MAX_KNOWN:
                taken.popitem(last=False)
        return item

    queue._put, queue._get = watched_put, watched_get
    queue.scope_of = lambda item: taken.pop(id(item), None)


class _Known:
    """What is remembered of one request in a scheduler."""

    __slots__ = ("preempted_ns", "scheduled", "scope", "since_ns")

    def __init__(self, since_ns: int, scope: Scope | None) -> None:
        self.since_ns = since_ns
        self.scope = scope
        self.scheduled = False
        self.preempted_ns = 0


class _Watch:
    """The three hooks of one scheduler, and what they know together."""

    def __init__(self, scheduler: Any, add: str, schedule: str, finish: str | None) -> None:
        self._known: dict[str, _Known] = {}
        self._running: set[str] = set()
        setattr(scheduler, add, self._around(getattr(scheduler, add), before=self._added))
        setattr(scheduler, schedule, self._scheduling(getattr(scheduler, schedule)))
        if finish is not None:
            setattr(scheduler, finish, self._around(getattr(scheduler, finish), before=self._finished))

    def _around(self, method: Callable[..., Any], before: Callable[..., None]) -> Callable[..., Any]:
        @wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if runtime.active is not None:
                try:
                    before(*args, **kwargs)
                except Exception:
                    # An argument of an unknown shape: this request is then not known, nothing else.
                    pass
            return method(*args, **kwargs)

        return watched

    def _added(self, request: Any, *args: Any, **kwargs: Any) -> None:
        if len(self._known) < _MAX_KNOWN:
            self._known[id_of(request)] = _Known(clock.now_ns(), current_scope())

    def _finished(self, requests: Any, *args: Any, **kwargs: Any) -> None:
        single = isinstance(requests, str) or not isinstance(requests, Iterable)
        for request in (requests,) if single else requests:
            self._known.pop(id_of(request), None)
            self._running.discard(id_of(request))

    def _scheduling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            start_ns = clock.now_ns()
            output = method(*args, **kwargs)
            if runtime.active is not None:
                try:
                    self._scheduled(start_ns, output)
                except Exception:
                    pass
            return output

        return watched

    def _scheduled(self, start_ns: int, output: Any) -> None:
        now = clock.now_ns()
        batch = set(ids_in(output))
        preempted = [name for name in self._running - batch if name in self._known]
        for name in batch:
            known = self._known.get(name)
            if known is None:
                continue
            if not known.scheduled:
                known.scheduled = True
                if known.scope is not None:
                    stage_from(known.since_ns, "queue", end_ns=now, scope=known.scope)
            elif known.preempted_ns and known.scope is not None:
                stage_from(known.preempted_ns, "preempted", end_ns=now, scope=known.scope)
            known.preempted_ns = 0
        for name in preempted:
            self._known[name].preempted_ns = now
        self._running = batch
        if batch or preempted:
            waiting = sum(1 for known in self._known.values() if not known.scheduled or known.preempted_ns)
            record_step(start_ns, now, running=len(batch), waiting=waiting, preempted=preempted)


def id_of(request: Any) -> str:
    """A request's id: itself where it is text, else its `request_id`, `rid` or `id`, else its identity."""
    if isinstance(request, (str, int)):
        return str(request)
    if isinstance(request, dict):
        found = next((request[name] for name in _ID if name in request), None)
    else:
        found = next((getattr(request, name) for name in _ID if hasattr(request, name)), None)
    return str(found) if found is not None else f"object-{id(request)}"


def ids_in(output: Any) -> list[str]:
    """The ids of the requests that a call of schedule chose: a list, a mapping by id, or an object that holds one."""
    if output is None:
        return []
    for name in ("num_scheduled_tokens", "scheduled", "requests", "reqs", "batch"):
        inner = getattr(output, name, None)
        if inner is not None and isinstance(inner, Iterable):
            output = inner
            break
    if isinstance(output, dict):
        return [str(name) for name in output]
    if isinstance(output, Iterable) and not isinstance(output, (str, bytes)):
        return [id_of(request) for request in output]
    return [id_of(output)]

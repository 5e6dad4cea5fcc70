"""Times an app's dependencies and middleware, and finds their stage by name.

Only FastAPI's and Starlette's public structure is used (`routes`, `dependant`, `user_middleware`); what is not there is
left alone. A dependency is replaced by a callable that equals it, so that `dependency_overrides` and FastAPI's cache of
results work as before.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from tailtrace.instrumentation import clock
from tailtrace.instrumentation.record import CURRENT, Record, live
from tailtrace.instrumentation.stage import stage_from, staged

_WORDS: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "auth", "authenticate", "authenticated", "authentication", "authorize", "authorization", "key", "apikey",
            "jwt", "token", "bearer", "oauth", "oauth2", "credentials",
        ),
        "auth",
    ),
    **dict.fromkeys(
        ("limit", "limits", "limiter", "limiting", "ratelimit", "ratelimiter", "quota", "throttle", "slowapi"),
        "rate_limit",
    ),
}  # fmt: skip

_MAX_MIDDLEWARE: Final = 64

# A dependency without a known name is worth a span only when it takes time.
_UNNAMED_FROM_NS: Final = 100_000


def stage_of_name(name: str) -> str | None:
    """The stage that a name speaks of: `verify_api_key` is auth, `RateLimitMiddleware` is rate_limit."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*", name)
    found = [_WORDS[word.lower()] for word in words if word.lower() in _WORDS]
    return found[-1] if found else None


def time_named_parts(app: Any, stages: Mapping[str, Any], sniff: bool) -> None:
    """Put timers into `app`: `stages` maps a stage to a callable, a middleware class, or a list of them."""
    given: dict[Any, str] = {}
    for name, parts in stages.items():
        for part in parts if isinstance(parts, (list, tuple, set)) else (parts,):
            given[part] = name
    _time_middleware(app, given, sniff)
    seen: dict[Any, TimedCall] = {}
    for route in _routes(app):
        dependant = getattr(route, "dependant", None)
        if dependant is not None:
            _time_dependant(dependant, given, sniff, seen)
    for part, name in given.items():
        if part not in seen and inspect.isfunction(part):
            _time_global(part, name)


def _routes(app: Any, depth: int = 0) -> list[Any]:
    found = []
    for route in getattr(app, "routes", None) or []:
        found.append(route)
        if depth < 8:
            found += _routes(getattr(route, "app", None) or route, depth + 1) if not hasattr(route, "dependant") else []
    return found


def _time_dependant(dependant: Any, given: Mapping[Any, str], sniff: bool, seen: dict[Any, TimedCall]) -> None:
    for child in getattr(dependant, "dependencies", ()):
        _time_dependant(child, given, sniff, seen)
        call = child.call
        if call is None or isinstance(call, TimedCall) or _yields(call):
            continue
        name = given.get(call) or (stage_of_name(name_of(call)) if sniff else None)
        if name is None and not sniff:
            continue
        if call not in seen:
            seen[call] = TimedCall(call, name or name_of(call), 0 if name else _UNNAMED_FROM_NS)
        child.call = seen[call]


def name_of(call: Any) -> str:
    """A callable's own name, or its class's."""
    return getattr(call, "__name__", None) or type(call).__name__


def _yields(call: Any) -> bool:
    return any(
        inspect.isgeneratorfunction(part) or inspect.isasyncgenfunction(part)
        for part in (call, getattr(call, "__call__", None))  # noqa: B004
    )


class TimedCall:
    """A dependency that is timed; equal to the one it stands for."""

    def __init__(self, call: Any, name: str, at_least_ns: int) -> None:
        self.__wrapped__ = call
        self.__name__ = name_of(call)
        self._name = name
        self._at_least_ns = at_least_ns
        # FastAPI reads the parameters before this is put in; others that look see the original's.
        try:
            self.__signature__ = inspect.signature(call)
        except (TypeError, ValueError):
            pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start_ns = clock.now_ns()
        try:
            result = self.__wrapped__(*args, **kwargs)
        except BaseException:
            self._end(start_ns)
            raise
        if inspect.iscoroutine(result):
            return self._await(start_ns, result)
        self._end(start_ns)
        return result

    async def _await(self, start_ns: int, result: Any) -> Any:
        try:
            return await result
        finally:
            self._end(start_ns)

    def _end(self, start_ns: int) -> None:
        end_ns = clock.now_ns()
        if end_ns - start_ns >= self._at_least_ns and live(CURRENT.get()) is not None:
            stage_from(start_ns, self._name, end_ns=end_ns)

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __eq__(self, other: object) -> bool:
        return other is self or self.__wrapped__ == getattr(other, "__wrapped__", other)


def _time_global(function: Any, name: str) -> None:
    """A function that handlers call by its module's name."""
    module = sys.modules.get(function.__module__)
    known: Any = getattr(module, function.__name__, None)
    if known is function:
        setattr(module, function.__name__, staged(name)(known))


def _time_middleware(app: Any, given: Mapping[Any, str], sniff: bool) -> None:
    """Middleware is timed from its call to its call of the next app, or to its answer where it makes none."""
    kinds: dict[Any, tuple[str, int]] = {}
    for entry in getattr(app, "user_middleware", None) or []:
        kind = getattr(entry, "cls", None)
        if kind is None or isinstance(kind, _Timed):
            continue
        name = given.get(kind) or (stage_of_name(name_of(kind)) if sniff else None)
        if name is not None or sniff:
            kinds[kind] = name or name_of(kind), 0 if name else _UNNAMED_FROM_NS
            entry.cls = _Timed(kind, *kinds[kind])
    if getattr(app, "middleware_stack", None) is not None:
        _time_built(app, kinds)


def _time_built(app: Any, kinds: Mapping[Any, tuple[str, int]]) -> None:
    """Put the timers into a stack that has been built already (some servers do so before they serve)."""
    holder, attribute = app, "middleware_stack"
    for _ in range(_MAX_MIDDLEWARE):
        current = getattr(holder, attribute)
        if not hasattr(current, "app"):
            return
        known = kinds.get(type(current))
        if known is None:
            holder, attribute = current, "app"
            continue
        gate = _Gate(*known, current.app)
        gate.inner = current
        current.app = gate.after
        setattr(holder, attribute, gate.before)
        holder, attribute = gate, "app"


class _Timed:
    """Stands for a middleware class: builds it between two timers."""

    def __init__(self, kind: Any, name: str, at_least_ns: int) -> None:
        self._kind = kind
        self._name = name
        self._at_least_ns = at_least_ns
        self.__name__ = name_of(kind)

    def __call__(self, app: Any, *args: Any, **kwargs: Any) -> Any:
        gate = _Gate(self._name, self._at_least_ns, app)
        gate.inner = self._kind(gate.after, *args, **kwargs)
        return gate.before


class _Gate:
    """The two timers around one middleware: `before` stands in its place, `after` between it and the next app."""

    def __init__(self, name: str, at_least_ns: int, app: Any) -> None:
        self._key = f"tailtrace.middleware.{id(self)}"
        self._name = name
        self._at_least_ns = at_least_ns
        self.app = app
        self.inner: Any = None

    def _end(self, scope: Any) -> None:
        start_ns = scope.pop(self._key, 0)
        if start_ns and (now := clock.now_ns()) - start_ns >= self._at_least_ns:
            record = scope.get("tailtrace.request")
            if isinstance(record, Record):
                record.mark(self._name, start_ns, now)

    def after(self, scope: Any, receive: Any, send: Any) -> Any:
        self._end(scope)
        return self.app(scope, receive, send)

    async def before(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        scope[self._key] = clock.now_ns()
        try:
            await self.inner(scope, receive, send)
        finally:
            if self._key in scope:
                self._end(scope)

"""How a request ended."""

from __future__ import annotations

from typing import Final

from tailtrace.instrumentation.record import Outcome

# By name: asyncio, anyio, concurrent.futures and the servers have their own classes, and none is imported for this.
_CANCELLED: Final = frozenset(
    {"CancelledError", "GeneratorExit", "ClientDisconnect", "ClientDisconnected", "Cancelled"}
)
_REJECTED: Final = frozenset({401, 403, 413, 429, 503})
_TIMEOUT: Final = frozenset({408, 504})
_CLIENT_CLOSED: Final = 499


def of_exception(kind: type[BaseException] | None) -> Outcome:
    """The outcome of leaving by an exception; `ok` for none."""
    if kind is None:
        return "ok"
    if any(base.__name__ in _CANCELLED for base in kind.__mro__):
        return "cancelled"
    if issubclass(kind, TimeoutError) or "Timeout" in kind.__name__:
        return "timeout"
    return "error"


def of_status(status: int) -> Outcome:
    """The outcome that an HTTP status means: refused for who you are or how much there is, too late, failed, or ok."""
    if status < 400:
        return "ok"
    if status in _REJECTED:
        return "rejected"
    if status in _TIMEOUT:
        return "timeout"
    return "cancelled" if status == _CLIENT_CLOSED else "error"

"""Replacing a function of another library: looked up late, checked, marked, undone never, and said.

A hook point that is not there, or has lost a parameter that the hook reads, is left alone: its stage is then not
available, which is logged once. What a hook does for itself never raises into the library.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tailtrace.instrumentation.transport import Every

log = logging.getLogger("tailtrace")

# What was hooked, and what was not with the reason, by library: for the line that each recording process prints.
hooked: dict[str, list[str]] = {}
refused: dict[str, dict[str, str]] = {}

_may_log = Every(60.0, time.monotonic)


def replace(
    library: str, owner: Any, path: str, make: Callable[[Any], Any], *, needs: Sequence[str] = (), gives: str = ""
) -> bool:
    """Put `make(original)` in the place of `owner.path` (`Class.method` or a function). False where it cannot be.

    `needs` are the parameters that the hook reads; `gives` says what is lost without it. A second call changes nothing.
    """
    *parents, name = path.split(".")
    original: Any = None
    for parent in parents:
        owner = getattr(owner, parent, None)
    original = inspect.getattr_static(owner, name, None) if owner is not None else None
    if original is None:
        return _refuse(library, path, "not there", gives)
    if getattr(original, "__tailtrace__", False):
        return True
    try:
        known = inspect.signature(original).parameters
    except (TypeError, ValueError):
        known = {}  # type: ignore[assignment]
    lacking = [parameter for parameter in needs if known and parameter not in known]
    if lacking:
        return _refuse(library, path, f"has no parameter {', '.join(lacking)}", gives)
    try:
        replacement = wraps(original)(make(original))
        replacement.__tailtrace__ = True  # type: ignore[attr-defined]
        setattr(owner, name, replacement)
    except Exception as error:
        return _refuse(library, path, f"{type(error).__name__}: {error}", gives)
    hooked.setdefault(library, []).append(path)
    return True


def _refuse(library: str, path: str, reason: str, gives: str) -> bool:
    refused.setdefault(library, {})[path] = reason
    log.info("tailtrace: %s: %s %s; not available: %s", library, path, reason, gives or path)
    return False


def fault(place: str) -> None:
    """Log, at most once a minute, an exception of ours that was kept from the library."""
    if _may_log():
        log.warning("tailtrace: fault in the hook of %s", place, exc_info=True)


def summary() -> str:
    """`uvicorn (2), vllm (9 of 10; without Scheduler._preempt_request: not there)`."""
    parts = []
    for library in sorted(hooked.keys() | refused.keys()):
        done, missing = len(hooked.get(library, ())), refused.get(library, {})
        text = f"{done} of {done + len(missing)}" if missing else str(done)
        reasons = "".join(f"; without {path}: {reason}" for path, reason in missing.items())
        parts.append(f"{library} ({text}{reasons})")
    return ", ".join(parts)

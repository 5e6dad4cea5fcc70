"""The pieces written in C, where they were built: what runs at every token, stage and span.

Each has a twin in Python that means the same. The twin runs where there was no compiler, in a subinterpreter, where the
interpreter has no lock, and with TAILTRACE_PURE=1; `native` is None then.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, Final

_INTERFACE: Final = 8


def _load() -> Any:
    if os.environ.get("TAILTRACE_PURE", "").lower() in {"1", "true", "yes", "on"}:
        return None
    try:
        from tailtrace.instrumentation import _fast
    except ImportError:
        return None
    loaded: ModuleType = _fast
    # One that an older checkout has built is left alone.
    return loaded if getattr(loaded, "interface", 0) == _INTERFACE else None


native: Any = _load()


def in_words() -> str:
    """Which of the two runs here."""
    return "in C" if native is not None else "in Python: the C extension was not built, or is turned off"

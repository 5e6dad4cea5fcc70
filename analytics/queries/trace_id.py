"""Trace and span ids as users type them: hex, either case."""

from __future__ import annotations

import re
from typing import Final

from tailtrace.errors import Rejected

_TRACE: Final = re.compile(r"^[0-9a-f]{32}$")
_SPAN: Final = re.compile(r"^[0-9a-f]{16}$")


def trace_id(text: str) -> str:
    """32 lower-case hex digits. Raises Rejected when it is anything else."""
    value = text.strip().lower()
    if not _TRACE.match(value):
        raise Rejected(f"a trace id is 32 hexadecimal digits; got {text[:40]!r}")
    return value


def span_id(text: str) -> str:
    """16 lower-case hex digits. Raises Rejected when it is anything else."""
    value = text.strip().lower()
    if not _SPAN.match(value):
        raise Rejected(f"a span id is 16 hexadecimal digits; got {text[:40]!r}")
    return value

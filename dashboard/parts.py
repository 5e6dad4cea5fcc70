"""The parts of pages that follow after their page (see `components.later`), by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tailtrace.dashboard.components.around import draw_around, draw_verdict
from tailtrace.dashboard.components.idle_summary import draw_idle
from tailtrace.dashboard.components.movers import draw_movers
from tailtrace.dashboard.text import Text
from tailtrace.ingest.store import Store

PARTS: Final[Mapping[str, Callable[[Store, Text, dict[str, str]], Any]]] = {
    "verdict": draw_verdict,
    "around": draw_around,
    "movers": draw_movers,
    "idle": draw_idle,
}

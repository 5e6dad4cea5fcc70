"""The parts of pages that follow after their page (see `components.later`), by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tailtrace.dashboard.components.around import draw_around, draw_verdict
from tailtrace.dashboard.components.idle_summary import draw_idle
from tailtrace.dashboard.components.movers import draw_movers
from tailtrace.dashboard.components.rule_parts import rule_parts
from tailtrace.dashboard.text import Text
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

Part = Callable[[Store, Text, dict[str, str]], Any]


def parts(settings: ServerSettings) -> Mapping[str, Part]:
    """Each draws what its place in the page says it is about."""
    return {
        "verdict": draw_verdict,
        "around": draw_around,
        "movers": draw_movers,
        "idle": draw_idle,
        **rule_parts(settings),
    }

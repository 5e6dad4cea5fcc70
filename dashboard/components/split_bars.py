"""The median above the tail, each divided among stages on one scale: what is long only in the tail stands out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dash import html

from tailtrace.analytics.queries.overview import StageSplit
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.components.page import panel
from tailtrace.dashboard.components.stage_bar import legend
from tailtrace.dashboard.format import duration, share
from tailtrace.dashboard.text import Text
from tailtrace.stages import NAMES, UNEXPLAINED

_NAMED_FROM: Final = 0.06  # of the longest bar: room for a word
_LEGEND_FROM: Final = 0.01


def split_panel(text: Text, splits: Sequence[StageSplit]) -> Any:
    """A panel with one bar a percentile; nothing without any."""
    longest = max((one.value_ns for one in splits), default=0)
    if not longest:
        return None
    shown = {part.stage for one in splits for part in one.stages if part.share >= _LEGEND_FROM}
    stages = [stage for stage in NAMES if stage in shown] + [UNEXPLAINED]
    return panel(text("column.split"), text("overview.outcomes_short"), *[_bar(text, one, longest) for one in splits],
                 legend(text, stages))  # fmt: skip


def _bar(text: Text, one: StageSplit, longest: int) -> Any:
    parts = [(part.stage, part.duration_ns) for part in one.stages]
    parts += [(UNEXPLAINED, one.unexplained_ns)] if one.unexplained_ns > 0 else []
    spoken = ", ".join(f"{text.stage(stage)} {duration(ns)} ({share(ns / one.value_ns)})" for stage, ns in parts)
    pieces = [
        html.Div(
            f"{text.stage(stage)} {duration(ns)}" if ns >= _NAMED_FROM * longest else "",
            className="tt-bar-part" + (" is-unexplained" if stage == UNEXPLAINED else ""),
            style={"flexGrow": ns, "background": f"var(--stage-{stage})", "color": f"var(--ink-{stage})"},
            title=f"{text.stage(stage)} {duration(ns)}, {share(ns / one.value_ns)}",
        )
        for stage, ns in parts
        if ns > 0
    ]
    bar = html.Div(pieces, className="tt-bar is-split", role="img", style={
        "width": f"{max(0.5, 100 * one.value_ns / longest):.1f}%"}, **aria(label=spoken))  # fmt: skip
    return html.Div(
        [html.B(f"P{one.q * 100:.0f}"), html.Div(bar), html.Span(duration(one.value_ns), className="tt-split-value")],
        className="tt-split-row",
    )

"""A request's time as one bar of stages, summing to the whole; what no span explains is hatched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from tailtrace.analytics.queries.request_head import StageLine
from tailtrace.analytics.queries.stage_shares import StageShare
from tailtrace.dashboard.components.attributes import aria
from tailtrace.dashboard.format import duration, share
from tailtrace.dashboard.text import Text
from tailtrace.stages import UNEXPLAINED

_LABEL_FROM = 0.06


def stage_bar(text: Text, lines: Sequence[StageLine], *, ttft_share: float | None = None) -> Any:
    """The large bar of one request. `ttft_share` marks where its first token came."""
    parts = [
        html.Span(
            text.stage(line.stage) if line.share >= _LABEL_FROM else "",
            className="tt-bar-part"
            + (" is-unexplained" if line.stage == UNEXPLAINED else "")
            + (" is-derived" if line.derived else ""),
            style={
                "flexGrow": line.duration_ns,
                "background": f"var(--stage-{line.stage})",
                "color": f"var(--ink-{line.stage})",
            },
            title=_title(text, line.stage, line.duration_ns, line.share),
        )
        for line in lines
        if line.duration_ns > 0
    ]
    return html.Div(parts, className="tt-bar tt-bar-large", role="img", **aria(label=_spoken(text, lines)))


def mini_bar(
    text: Text, stages: Sequence[StageShare], unexplained_ns: int, whole_ns: int, *, width: float = 1.0
) -> Any:
    """The small bar of a table row: one element, so that long lists stay light. `width` is its length, 0 to 1, of
    the cell.
    """
    parts = [(one.stage, one.duration_ns) for one in stages] + (
        [(UNEXPLAINED, unexplained_ns)] if unexplained_ns > 0 else []
    )
    total = sum(ns for _, ns in parts) or 1
    stops, at = [], 0.0
    for stage, ns in parts:
        end = at + 100 * ns / total
        stops.append(f"var(--stage-{stage}) {at:.2f}% {end:.2f}%")
        at = end
    top = sorted(parts, key=lambda part: -part[1])[:4]
    words = " · ".join(
        f"{text.stage(stage)} {duration(ns)} ({share(ns / whole_ns if whole_ns else 0)})" for stage, ns in top
    )
    background = f"linear-gradient(90deg,{','.join(stops)})" if stops else "none"
    return html.Div(
        html.Div(className="tt-mini", style={"background": background, "width": f"{max(1.0, 100 * width):.1f}%"}),
        className="tt-mini-cell",
        title=words,
        role="img",
        **aria(label=words),
    )


def legend(text: Text, stages: Sequence[str]) -> Any:
    """Chips that name the colours, with each stage's meaning on hover."""
    return html.Div(
        [
            html.Span(
                [
                    html.I(
                        className="tt-dot" + (" is-unexplained" if stage == UNEXPLAINED else ""),
                        style={"background": f"var(--stage-{stage})"},
                    ),
                    text.stage(stage),
                ],
                className="tt-chip",
                title=text.meaning(stage),
            )
            for stage in stages
        ],
        className="tt-legend",
    )


def _title(text: Text, stage: str, ns: int, part: float) -> str:
    return f"{text.stage(stage)}: {duration(ns)}, {share(part)}\n{text.meaning(stage)}"


def _spoken(text: Text, lines: Sequence[StageLine]) -> str:
    return ", ".join(f"{text.stage(line.stage)} {share(line.share)}" for line in lines)

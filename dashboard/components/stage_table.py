"""The stages of one request as a table: what each took, its part of the first token's wait, and how it is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from tailtrace.analytics.queries.request_head import StageLine
from tailtrace.dashboard.format import duration, share
from tailtrace.dashboard.text import Text
from tailtrace.stages import UNEXPLAINED


def stage_table(text: Text, lines: Sequence[StageLine]) -> Any:
    """Rows in the order a request passes them; the sum is the duration."""
    heads = (
        ("column.stage", ""),
        ("column.kind", ""),
        ("column.duration", "is-number"),
        ("column.share", "is-number"),
        ("", "is-share"),
        ("column.before_first", "is-number"),
        ("column.known_by", ""),
    )
    total = sum(line.duration_ns for line in lines)
    before = [line.ttft_duration_ns for line in lines if line.ttft_duration_ns is not None]
    foot = html.Tr(
        [
            html.Th(text("request.sum")),
            html.Td(),
            html.Td(duration(total), className="is-number"),
            html.Td(share(1.0) if lines else "–", className="is-number"),
            html.Td(),
            html.Td(duration(sum(before)) if before else "–", className="is-number"),
            html.Td(),
        ]
    )
    return html.Table(
        [
            html.Thead(html.Tr([html.Th(text(key) if key else "", className=kind) for key, kind in heads])),
            html.Tbody([_row(text, line) for line in lines]),
            html.Tfoot(foot),
        ],
        className="tt-table is-stage-table",
    )


def _row(text: Text, line: StageLine) -> Any:
    unexplained = line.stage == UNEXPLAINED
    known = "known.none" if unexplained else "known.derived" if line.derived else "known.measured"
    dot = html.I(
        className="tt-dot" + (" is-unexplained" if unexplained else ""),
        style={"background": f"var(--stage-{line.stage})"},
    )
    width = {"width": f"{max(0.5, 100 * line.share):.1f}%", "background": f"var(--stage-{line.stage})"}
    return html.Tr(
        [
            html.Td(
                [
                    dot,
                    html.Span(text.stage(line.stage), className="tt-term", title=text.meaning(line.stage), tabIndex=0),
                ]
            ),
            html.Td(
                text(f"kind.{line.kind}", resource=text(f"resource.{line.resource}")) if line.kind else "",
                className="tt-muted",
            ),
            html.Td(duration(line.duration_ns), className="is-number"),
            html.Td(share(line.share), className="is-number"),
            html.Td(
                html.Div(className="tt-share" + (" is-unexplained" if unexplained else ""), style=width),
                className="is-share",
            ),
            html.Td(duration(line.ttft_duration_ns), className="is-number"),
            html.Td(text(known), className="tt-muted", title=text(known + ".hint")),
        ]
    )

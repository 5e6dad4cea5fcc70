"""A verdict in words, with what bears it: cause, share, how sure, readings, thresholds, what else it could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import html

from tailtrace.analytics.verdicts.verdict import Evidence, Verdict
from tailtrace.dashboard.components.page import tag
from tailtrace.dashboard.format import DASH, share
from tailtrace.dashboard.text import Text


def verdict_panel(text: Text, found: Verdict) -> Any:
    """The cause as a headline only where confidence is high; else it is named as a guess, or as unknown."""
    unknown = found.cause == "unknown"
    sure = found.confidence == "high" and not unknown
    headline = _headline(text, found.cause, sure, found.reason)
    return html.Div(
        [
            html.Div(
                [
                    html.Strong(headline),
                    tag(text("verdict.share", share=share(found.share))),
                    tag(text(f"confidence.{found.confidence}"), "high" if sure else ""),
                ],
                className="tt-card-head",
            ),
            evidence_table(text, found.evidence),
            _others(text, found),
            html.P(text("verdict.missing", what=text.listed(found.missing)), className="tt-muted")
            if found.missing
            else None,
        ],
        className="tt-list",
        id="verdict",
    )


def _others(text: Text, found: Verdict) -> Any:
    if not found.alternatives:
        return None
    words = text("list").join(f"{text.cause(one.cause)} ({share(one.share)})" for one in found.alternatives)
    return html.P(text("verdict.alternatives", what=words), className="tt-muted")


def kept_verdict(text: Text, found: Mapping[str, Any]) -> Any:
    """A verdict that was kept as JSON, in a message or a window: one line, and its evidence."""
    cause, confidence = str(found.get("cause", "unknown")), str(found.get("confidence", "low"))
    sure = confidence == "high" and cause != "unknown"
    return html.Div(
        [
            html.Div(
                [
                    html.Span(_headline(text, cause, sure, str(found.get("reason") or ""))),
                    tag(text("verdict.share", share=share(found.get("share")))),
                    tag(text.or_else(f"confidence.{confidence}", confidence), "high" if sure else ""),
                ],
                className="tt-card-head",
            ),
            evidence_table(text, [_evidence(one) for one in found.get("evidence") or () if "value" in one]),
        ]
    )


def _headline(text: Text, cause: str, sure: bool, reason: str) -> str:
    key = "verdict.high" if sure else "verdict.unknown" if cause == "unknown" else "verdict.maybe"
    return text(key, cause=text.cause(cause), reason=text.said(reason) or DASH)


def _evidence(one: Mapping[str, Any]) -> Evidence:
    return Evidence(str(one.get("metric", "")), one["value"], one.get("threshold"), str(one.get("source", "")))


def evidence_table(text: Text, evidence: Sequence[Evidence]) -> Any:
    """Readings, thresholds, and where the thresholds come from."""
    if not evidence:
        return None
    return html.Table(
        [
            html.Tbody(
                [
                    html.Tr(
                        [
                            html.Th(text.said(one.metric)),
                            html.Td(html.Strong(number(one.value))),
                            html.Td(
                                "" if one.threshold is None else text("evidence.threshold", value=number(one.threshold))
                            ),
                            html.Td(text.said(one.source), className="tt-muted"),
                        ]
                    )
                    for one in evidence
                ]
            )
        ],
        className="tt-evidence",
    )


def number(value: float) -> str:
    """Three figures; very small and very large ones with a power of ten."""
    if value == 0 or 0.001 <= abs(value) < 1e6:
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:.2e}"

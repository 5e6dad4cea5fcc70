"""The plain sentence about a service."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.analytics.queries.overview import ServiceOverview, StageSplit
from tailtrace.analytics.queries.stage_shares import StageShare, largest
from tailtrace.dashboard.format import count, duration, share
from tailtrace.dashboard.text import Text


def sentence(text: Text, one: ServiceOverview) -> Any:
    """What is slow and which stage; with too few requests for a P99, that is said instead of a number."""
    return html.P(
        [html.Strong(one.service or text("service.unnamed")), html.Span(text("colon")), *_words(text, one)],
        className="tt-sentence",
    )


def _words(text: Text, one: ServiceOverview) -> list[Any]:
    tail = one.duration[-1] if one.duration else None
    split = one.duration_split[-1] if one.duration_split else None
    if tail is None or split is None:
        return [text("sentence.none", n=count(one.requests))]
    if tail.hollow:
        words = [text("sentence.few", n=count(tail.n), needed="1,000", low=duration(tail.low_ns))]
    else:
        words = [text("sentence.tail", p99=duration(tail.value_ns))]
    top = largest(split.stages)
    if top is None or split.unexplained_ns > top.duration_ns:
        return [*words, " ", text("sentence.unexplained", share=share(split.unexplained_ns / split.value_ns))]
    if not one.staged:
        return [*words, " ", text("sentence.unstaged", ns=duration(top.duration_ns), stage=text.stage(top.stage))]
    return [*words, " ", *_blame(text, one, split, top)]


def _blame(text: Text, one: ServiceOverview, split: StageSplit, top: StageShare) -> list[Any]:
    """The stage that takes most of the tail, and its share of the median for comparison."""
    middle = one.duration_split[0]
    usual = next((part.share for part in middle.stages if part.stage == top.stage), 0.0)
    mark = html.Span(
        [html.I(className="tt-dot", style={"background": f"var(--stage-{top.stage})"}), text.stage(top.stage)],
        className="tt-chip",
        title=text.meaning(top.stage),
    )
    return [
        text("sentence.share", share=share(top.share)), " ", mark, " ",
        text("sentence.compare", ns=duration(top.duration_ns), usual=share(usual), p50=duration(middle.value_ns)),
    ]  # fmt: skip

"""Small marks beside figures: outcome, simulated data, copyable ids, percentiles that few requests stand behind."""

from __future__ import annotations

from typing import Any

from dash import html

from tailtrace.analytics.queries.percentiles import Percentile
from tailtrace.dashboard.components.attributes import data
from tailtrace.dashboard.format import DASH, count, duration
from tailtrace.dashboard.text import Text


def outcome_mark(text: Text, outcome: str) -> Any:
    """Word and shape, so that colour never says it alone."""
    return html.Span(text.outcome(outcome), className=f"tt-outcome is-{outcome if outcome.isalpha() else 'other'}")


def simulated_mark(text: Text) -> Any:
    """Drawn wherever made data is."""
    return html.Span(text("simulated"), className="tt-badge is-simulated", title=text("simulated.hint"))


def copyable(text: Text, label: str, value: str) -> Any:
    """An id that a click copies."""
    return html.Button(
        [html.Span(label, className="tt-id-label"), html.Code(value)],
        className="tt-id",
        title=text("copy"),
        **data(copy=value),
    )


def percentile_mark(text: Text, one: Percentile | None) -> Any:
    """A percentile; hollow, with its interval and n, where fewer than 10/(1-q) requests stand behind it."""
    if one is None or one.value_ns is None:
        return html.Span(DASH, className="tt-unknown")
    if not one.hollow:
        return html.Span(duration(one.value_ns), title=text("percentile.n", n=count(one.n)))
    return html.Span(
        [html.Span(_interval(text, one)), html.Small(f"n={count(one.n)}")],
        className="tt-hollow",
        title=text("percentile.hollow", n=count(one.n)),
    )


def _interval(text: Text, one: Percentile) -> str:
    """`1.2 s … 2.0 s`, or the side that is known; of too few requests for either, the value itself."""
    if one.low_ns is None and one.high_ns is None:
        return duration(one.value_ns)
    if one.high_ns is None:
        return text("percentile.at_least", low=duration(one.low_ns))
    if one.low_ns is None:
        return text("percentile.at_most", high=duration(one.high_ns))
    return f"{duration(one.low_ns)} … {duration(one.high_ns)}"

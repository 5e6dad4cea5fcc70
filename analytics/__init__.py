"""From stored spans to answers: attribution, background jobs and queries."""

from __future__ import annotations


def warm_up() -> None:
    """Compile the kernels, or load them from their cache, before the first request needs them (up to 30 s once)."""
    from tailtrace.analytics.jobs.requests import warm_up as warm_up_rounds
    from tailtrace.analytics.judge import judge_spans
    from tailtrace.analytics.trace import Span

    judge_spans([Span("0" * 31 + "1", "0" * 15 + "1", "", "warm-up", "Server", "warm-up", 0, 1)])
    warm_up_rounds()

"""A process that declares backfill marks its requests."""

from __future__ import annotations

from tailtrace.analytics.judge import judge_spans
from tailtrace.analytics.trace import Span


def test_requests_of_a_process_that_declares_backfill_are_flagged() -> None:
    resource = {"service.name": "a", "tailtrace.backfill": "true"}
    ids = ("0" * 31 + "1", "0" * 15 + "1", "")
    late = judge_spans([Span(*ids, "GET /", "Server", "a", 0, 10, resource=resource)])
    live = judge_spans([Span(*ids, "GET /", "Server", "a", 0, 10)])
    assert [one.row["Flags"] for one in (*late, *live)] == [["backfill"], []]

"""Situations in which other tools were reported to mislead, with the answer that is right (docs/robustness.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries.overview import overview
from tailtrace.analytics.queries.window import MINUTE_NS, Window
from tailtrace.analytics.trace import Span
from tailtrace.ingest.store import Store
from tests.analytics.feed import feed
from tests.analytics.test_requests_job import BASE_NS, MS, rows, run

SINCE = T0 // MINUTE_NS * MINUTE_NS
WINDOW = Window(SINCE, SINCE + 60 * MINUTE_NS, "1m", MINUTE_NS)


def span(number: int, parent: int, service: str, start_ms: int, end_ms: int, **attributes: Any) -> Span:
    """A span of one trace, times in ms from its beginning."""
    told = {f"tailtrace.{name}": str(value) for name, value in attributes.items()}
    above = f"{parent:016x}" if parent else ""
    kind = "Internal" if "stage" in attributes and service == "gateway" else "Server"
    return Span(
        f"{9:032x}", f"{number:016x}", above, f"span {number}", kind, service,
        BASE_NS + start_ms * MS, BASE_NS + end_ms * MS, told,
    )  # fmt: skip


def judged(store: Store, folder: Path, *spans: Span) -> dict[str, dict[str, Any]]:
    feed(store, folder, spans)
    run(store, 3_000)
    return {row["Service"]: row for row in rows(store)}


def test_between_two_workers_nothing_is_lost(store: Store, tmp_path: Path) -> None:
    """vllm-project/vllm#22454: each worker shows a low first token, the user waits for the hand-over as well."""
    found = judged(
        store,
        tmp_path,
        span(1, 0, "gateway", 0, 1000, ttft_ns=750 * MS, streaming="true"),
        span(2, 1, "prefill-worker", 50, 250, stage="prefill"),
        span(3, 1, "decode-worker", 700, 1000, stage="decode", ttft_ns=50 * MS),
    )
    user = found["gateway"]
    assert (user["TtftNs"], user["DurationNs"]) == (750 * MS, 1000 * MS)
    assert (user["PrefillTtftNs"], user["DecodeTtftNs"], user["UnexplainedTtftNs"]) == (200 * MS, 50 * MS, 500 * MS)
    assert found["decode-worker"]["TtftNs"] == 50 * MS


def test_a_measured_hand_over_is_its_own_stage(store: Store, tmp_path: Path) -> None:
    found = judged(
        store,
        tmp_path,
        span(1, 0, "gateway", 0, 1000, ttft_ns=750 * MS, streaming="true"),
        span(2, 1, "prefill-worker", 50, 250, stage="prefill"),
        span(3, 1, "gateway", 250, 700, stage="kv_transfer"),
        span(4, 1, "decode-worker", 700, 1000, stage="decode"),
    )["gateway"]
    assert (found["KvTransferNs"], found["UnexplainedNs"]) == (450 * MS, 50 * MS)


def test_what_the_engine_does_not_cover_is_unexplained(store: Store, tmp_path: Path) -> None:
    """vllm-project/vllm#9952: one span about a tenth as long as its request."""
    [row] = judged(
        store, tmp_path, span(1, 0, "gateway", 0, 1000), span(2, 1, "gateway", 100, 200, stage="prefill")
    ).values()
    assert (row["PrefillNs"], row["UnexplainedNs"]) == (100 * MS, 900 * MS)


def test_overlapping_children_are_counted_once(store: Store, tmp_path: Path) -> None:
    [row] = judged(
        store,
        tmp_path,
        span(1, 0, "gateway", 0, 1000),
        span(2, 1, "gateway", 0, 600, stage="auth"),
        span(3, 1, "gateway", 400, 1000, stage="tokenize"),
    ).values()
    assert (row["AuthNs"], row["TokenizeNs"], row["UnexplainedNs"]) == (400 * MS, 600 * MS, 0)


def test_users_who_gave_up_are_counted_and_can_be_included(store: Store) -> None:
    """vllm-project/vllm#31503: without the aborted ones a tail looks best when users leave."""
    given_up = [request(n, duration_ns=30 * SECOND, end_ns=T0 + n * SECOND, Outcome="cancelled") for n in range(5)]
    served = [request(n, duration_ns=SECOND, end_ns=T0 + n * SECOND) for n in range(5, 100)]
    insert_requests(store, given_up + served)

    def p99(*outcomes: str) -> int | None:
        [service] = overview(store, WINDOW, outcomes=outcomes).services
        assert service.cancelled_share == 0.05
        return service.duration[-1].value_ns

    assert p99("ok") == pytest.approx(SECOND, rel=0.01)
    assert p99("ok", "cancelled") == pytest.approx(30 * SECOND, rel=0.01)


def test_four_milliseconds_and_four_hundred_seconds_in_one_percentile(store: Store) -> None:
    """vllm-project/vllm#15167, #48175: no largest and no smallest bucket decides the answer."""
    fast = [request(n, duration_ns=4 * MS, end_ns=T0 + n * SECOND) for n in range(100)]
    slow = [request(n, duration_ns=400 * SECOND, end_ns=T0 + n * SECOND) for n in range(100, 105)]
    insert_requests(store, fast + slow)
    [service] = overview(store, WINDOW).services
    assert service.duration[0].value_ns == pytest.approx(4 * MS, rel=0.01)
    assert service.duration[-1].value_ns == pytest.approx(400 * SECOND, rel=0.01)

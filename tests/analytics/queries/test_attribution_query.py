"""Attribution of a percentile: sums, agreement of rows and rollups, small samples, gone rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries.attribution import attribution
from tailtrace.analytics.queries.overview import overview
from tailtrace.analytics.queries.series import series
from tailtrace.analytics.queries.window import MINUTE_NS, Window
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

MS = 1_000_000
SINCE = T0 // MINUTE_NS * MINUTE_NS
WINDOW = Window(SINCE, SINCE + 60 * MINUTE_NS, "1m", MINUTE_NS)


def seed(store: Store, n: int = 2000, **columns: Any) -> None:
    """Queue grows with rank: nothing for the fast half, most of the tail."""
    generator = np.random.default_rng(7)
    rows = []
    for number in range(n):
        queue = int(generator.exponential(80) ** 1.5 * MS)
        decode = int(generator.normal(300, 20) * MS)
        first = queue + 20 * MS
        rows.append(
            request(
                number, duration_ns=queue + decode + 25 * MS, end_ns=T0 + number * SECOND // 2, QueueNs=queue,
                DecodeNs=decode, TtftNs=first, QueueTtftNs=queue, UnexplainedTtftNs=20 * MS, TpotNs=decode // 100,
                Replica=f"r{number % 2}", **columns,
            )
        )  # fmt: skip
    insert_requests(store, rows)


@pytest.mark.parametrize("metric", ["duration", "ttft", "tpot"])
def test_parts_sum_to_the_percentile_and_rows_agree_with_rollups(store: Store, metric: Any) -> None:
    seed(store)
    rolled = attribution(store, WINDOW, "api", metric=metric, q=0.95)
    rows = attribution(store, WINDOW, "api", metric=metric, q=0.95, filters={"tenant": ""})
    assert (rolled.source, rows.source, rolled.n, rows.n) == ("rollups", "rows", 2000, 2000)
    for answer in (rolled, rows):
        assert sum(part.duration_ns for part in answer.stages) == answer.value_ns
        assert answer.no_interval is None
        assert all(part.low_share <= part.share <= part.high_share for part in answer.stages)  # type: ignore[operator]
    assert rolled.value_ns == pytest.approx(rows.value_ns, rel=0.01)
    assert (rolled.rank_low, rolled.rank_high) == (rows.rank_low, rows.rank_high) == (1850, 1950)
    for one, other in zip(rolled.stages, rows.stages, strict=True):
        assert one.stage == other.stage
        assert one.share == pytest.approx(other.share, abs=0.005)


def test_the_tail_is_the_queue(store: Store) -> None:
    seed(store)
    median = {part.stage: part.share for part in attribution(store, WINDOW, "api", q=0.5).stages}
    tail = {part.stage: part.share for part in attribution(store, WINDOW, "api", q=0.99).stages}
    assert median["decode"] > 0.25
    assert tail["queue"] > 0.85


def test_filters_choose_rows(store: Store) -> None:
    seed(store, 400)
    answer = attribution(store, WINDOW, "api", filters={"replica": "r1"})
    assert (answer.n, answer.source, answer.filters) == (200, "rows", {"replica": "r1"})


def test_buffered_answers_are_in_no_ttft_percentile_unless_asked_for(store: Store) -> None:
    """https://github.com/sgl-project/sglang/pull/40275: a buffered answer has an engine stamp its client never saw."""
    insert_requests(
        store,
        [
            request(number, duration_ns=3 * SECOND, end_ns=T0 + number * SECOND, Streaming=streaming, TtftNs=ttft)
            for number in range(100)
            for streaming, ttft in [("true", 100 * MS) if number < 50 else ("false", 2000 * MS)]
        ],
    )
    for filters in ({}, {"tenant": ""}):
        answer = attribution(store, WINDOW, "api", metric="ttft", q=0.95, filters=filters)
        assert answer.n == 50, answer.source
        assert answer.value_ns == pytest.approx(100 * MS, rel=0.01)
    buffered = attribution(store, WINDOW, "api", metric="ttft", q=0.95, filters={"streaming": "false"})
    assert (buffered.n, buffered.value_ns) == (50, pytest.approx(2000 * MS, rel=0.01))
    assert attribution(store, WINDOW, "api", metric="duration", q=0.95).n == 100
    [service] = overview(store, WINDOW).services
    assert (service.requests, service.duration[0].n, service.ttft[0].n) == (100, 100, 50)
    steps = series(store, WINDOW, "api", metric="ttft").percentiles[0]
    assert sum(step.n for step in steps) == 50


def test_few_requests_are_hollow_and_have_no_interval(store: Store) -> None:
    seed(store, 60)
    answer = attribution(store, WINDOW, "api", q=0.95)
    assert (answer.hollow, answer.widened, answer.rank_low, answer.rank_high) == (True, True, 7, 60)
    assert answer.no_interval == "60 requests are too few for an interval; 100 are needed"
    assert sum(part.duration_ns for part in answer.stages) == answer.value_ns


def test_gone_rows_leave_rollups_without_interval(store: Store) -> None:
    seed(store, 300)
    store.command("TRUNCATE TABLE requests")
    answer = attribution(store, WINDOW, "api")
    assert answer.n == 300
    assert answer.no_interval == "the rows of this range are gone; only rollups are left"
    assert all(part.low_ns is None for part in answer.stages)


def test_nothing_is_null_and_not_zero(store: Store) -> None:
    answer = attribution(store, WINDOW, "nobody")
    assert (answer.n, answer.value_ns, answer.stages) == (0, None, [])
    assert answer.no_interval == "no requests in this range"


def test_what_cannot_be_asked(store: Store) -> None:
    with pytest.raises(Rejected, match="there is no attribute 'colour'"):
        attribution(store, WINDOW, "api", filters={"colour": "red"})
    with pytest.raises(Rejected, match="q lies between 0 and 1"):
        attribution(store, WINDOW, "api", q=1)

"""What is a change, what is not, and when one began."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrace.analytics.detection.counts import INTERVAL_S, PER_DAY, PER_HOUR, Counts, counts
from tailtrace.analytics.detection.cusum import evidence, onset
from tailtrace.analytics.detection.detector import Judged, detect
from tailtrace.analytics.detection.reference import build
from tailtrace.analytics.detection.stages import StageCells, growth


def made(factor: Any, *, start: int = 0, per_interval: int = 60, share: Any = 0.5, seed: int = 1) -> Counts:
    """Intervals of lognormal requests of two kinds, the second ten times slower; `factor` stretches each interval.

    `share` of the requests is of the first kind, by interval.
    """
    draw = np.random.default_rng(seed)
    length = len(factor)
    interval = np.repeat(np.arange(length), per_interval)
    first = draw.random(length * per_interval) < np.broadcast_to(share, (length,))[interval]
    ns = draw.lognormal(0.0, 0.3, len(interval)) * np.where(first, 1e8, 1e9) * np.asarray(factor)[interval]
    bucket = np.ceil(np.log(ns) / np.log(1.02)).astype(np.int64)
    return counts(interval + start, first.astype(np.int64), bucket, np.ones(len(interval), np.int64))


def judged(cells: Counts, **options: Any) -> Judged:
    return detect(cells, until=cells.last + 1, **options)


def test_a_shift_is_found_where_it_began_and_its_end_too() -> None:
    factor = np.ones(3 * PER_DAY)
    factor[600:700] = 1.3
    (found,) = judged(made(factor)).changes
    assert abs(found.onset - 600) <= 2
    assert found.confirmed is not None
    assert found.confirmed - 600 <= 4
    assert found.state == "resolved"
    assert found.until is not None
    assert abs(found.until - 699) <= 4


def test_other_traffic_is_no_change() -> None:
    """Half of the fast requests turn into slow ones: the P95 and the mean double, each kind is as before."""
    share = np.where(np.arange(3 * PER_DAY) < 700, 0.9, 0.4)
    assert judged(made(np.ones(3 * PER_DAY), share=share)).changes == []


def test_getting_faster_is_no_change() -> None:
    factor = np.ones(2 * PER_DAY)
    factor[400:] = 0.7
    assert judged(made(factor)).changes == []


@given(seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_nothing_is_found_where_nothing_is(seed: int) -> None:
    assert judged(made(np.ones(2 * PER_DAY), seed=seed, per_interval=40)).changes == []


def test_one_interval_is_a_blip() -> None:
    factor = np.ones(2 * PER_DAY)
    factor[500] = 1.25
    assert all(found.state == "dismissed" for found in judged(made(factor)).changes)


def test_learning_until_there_is_enough() -> None:
    few = judged(made(np.ones(20), per_interval=60))
    assert few.learning == (1140 if few.learning is None else few.learning[0], 2000)
    assert few.changes == []
    short = judged(made(np.ones(20), per_interval=400))
    assert short.learning is not None
    assert judged(made(np.ones(3 * PER_HOUR), per_interval=100)).learning is None


def test_few_requests_are_no_evidence() -> None:
    """Three requests, one of 30 s, after a day of a hundred an interval."""
    usual = made(np.ones(PER_DAY), per_interval=100)
    late = counts(
        np.concatenate((usual.interval, np.full(3, PER_DAY))), np.concatenate((usual.kind, np.ones(3, np.int64))),
        np.concatenate((usual.bucket, np.array([930, 930, 1220]))), np.concatenate((usual.n, np.ones(3))),
    )  # fmt: skip
    assert judged(late).changes == []


def test_a_kind_that_was_never_there_is_reported_as_not_covered() -> None:
    usual = made(np.ones(2 * PER_DAY), per_interval=40)
    new = counts(
        np.concatenate((usual.interval, usual.interval[-40 * 144 :])),
        np.concatenate((usual.kind, np.full(40 * 144, 9))),
        np.concatenate((usual.bucket, np.full(40 * 144, 1100))), np.concatenate((usual.n, np.ones(40 * 144))),
    )  # fmt: skip
    found = judged(new)
    assert found.changes == []
    assert 0.6 < found.covered < 0.9


@pytest.mark.parametrize("change", [datetime(2026, 3, 8, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)])
def test_a_nightly_batch_is_usual_across_clock_changes(change: datetime) -> None:
    zone = ZoneInfo("America/New_York")
    start = int(change.timestamp()) // INTERVAL_S - 10 * PER_DAY
    length = 13 * PER_DAY
    hours = np.array([datetime.fromtimestamp((start + at) * INTERVAL_S, zone).hour for at in range(length)])
    nightly = np.where(hours == 2, 5.0, 1.0)
    cells = made(nightly, start=start, per_interval=30)
    found = judged(cells, judge_from=start + 8 * PER_DAY, zone="America/New_York")
    assert [each for each in found.changes if each.confirmed is not None] == []
    noon = np.where(np.arange(length) // PER_HOUR == (11 * PER_DAY) // PER_HOUR + 14, 5.0, nightly)
    again = judged(made(noon, start=start, per_interval=30), judge_from=start + 8 * PER_DAY, zone="America/New_York")
    assert [each.onset - start for each in again.changes if each.confirmed is not None] == [
        11 * PER_DAY + 14 * PER_HOUR
    ]


def test_what_happens_every_week_is_usual_once_two_weeks_are_there() -> None:
    """Sundays from 2 to 6 in Shanghai: five times as long, for three weeks."""
    zone = ZoneInfo("Asia/Shanghai")
    start = int(datetime(2026, 3, 2, tzinfo=zone).timestamp()) // INTERVAL_S  # a Monday
    length = 21 * PER_DAY
    moments = [datetime.fromtimestamp((start + at) * INTERVAL_S, zone) for at in range(length)]
    weekly = np.where([each.weekday() == 6 and 2 <= each.hour < 6 for each in moments], 5.0, 1.0)
    sunday = start + 20 * PER_DAY
    cells = made(weekly, start=start, per_interval=20)

    def told(given: Counts, **options: str) -> list[int]:
        found = judged(given, judge_from=sunday - PER_DAY, **options).changes
        return [each.onset - start for each in found if each.confirmed is not None]

    assert told(cells, zone="Asia/Shanghai") == []
    wednesday = np.where(np.arange(length) // PER_HOUR == (20 * PER_DAY) // PER_HOUR + 14, 5.0, weekly)
    assert told(made(wednesday, start=start, per_interval=20), zone="Asia/Shanghai") == [20 * PER_DAY + 14 * PER_HOUR]
    once = np.where(np.arange(length) < 20 * PER_DAY, 1.0, weekly)  # nothing of the kind in the weeks before
    assert told(made(once, start=start, per_interval=20), zone="Asia/Shanghai") == [20 * PER_DAY + 2 * PER_HOUR]


def test_a_change_that_lasts_is_the_reference_of_what_comes_on_top() -> None:
    factor = np.ones(3 * PER_DAY)
    factor[500:760] = 1.3
    factor[600:700] = 1.3 * 1.3
    found = judged(made(factor, per_interval=100)).changes
    assert [(each.on_top, each.state) for each in found] == [(False, "resolved"), (True, "resolved")]
    assert abs(found[0].onset - 500) <= 2
    assert abs(found[1].onset - 600) <= 2
    assert found[1].until is not None
    assert abs(found[1].until - 699) <= 4


def test_evidence_is_pages_sum_for_a_shift_of_twice_the_allowance_and_never_less() -> None:
    assert evidence(np.full((7, 1), 2.0), 1.0).tolist() == [7.0]
    draw = np.random.default_rng(1)
    for _ in range(50):
        z = draw.normal(0.7, 1.5, (40, 2))
        page = np.zeros(2)
        for step in z:
            page = np.maximum(0.0, page + step - 1.0)
        assert (evidence(z, 1.0) >= page - 1e-9).all()


def test_a_change_that_is_known_is_carried_on_and_not_found_twice() -> None:
    factor = np.ones(3 * PER_DAY)
    factor[500:] = 1.3
    cells = made(factor)
    (first,) = detect(cells, until=560).changes
    assert first.state == "confirmed"
    later = detect(cells, until=3 * PER_DAY, judge_from=576, known=[first])
    assert [each.onset for each in later.changes] == [first.onset]
    assert later.changes[0].state == "confirmed"


def test_the_most_likely_onset() -> None:
    assert onset(np.array([0.1, -0.2, 0.0, 3.0, 4.0, 2.5])) == 3


def test_scores_of_the_reference_average_to_nothing() -> None:
    cells = made(np.ones(100), per_interval=200)
    base = int(cells.bucket.min())
    width = int(cells.bucket.max()) - base + 1
    histogram = np.bincount(cells.kind * width + cells.bucket - base, cells.n, 2 * width).reshape(2, width)
    _, covered, excess, variance = build(histogram, base).sums(cells, 0, len(cells), 0, 100)
    assert covered.sum() == 100 * 200
    assert abs(excess.sum(axis=1)).max() < 1e-6
    assert 0.5 < float((excess**2 / variance).mean()) < 1.5


def test_the_stage_that_grew_among_like_requests() -> None:
    """Tokenize grew by 5 in either kind; decode is longer only because there are more long requests."""
    before = StageCells(
        np.repeat(np.arange(20), 2), np.tile([0, 1], 20), np.tile([90.0, 10.0], 20),
        np.tile([[900.0, 9_000.0], [100.0, 9_000.0]], (20, 1)) * 1e6,
    )  # fmt: skip
    after = StageCells(
        np.repeat(np.arange(20, 23), 2), np.tile([0, 1], 3), np.tile([50.0, 50.0], 3),
        np.tile([[750.0, 5_000.0], [750.0, 45_000.0]], (3, 1)) * 1e6,
    )  # fmt: skip
    (first, second) = growth(["tokenize", "decode"], before, after)
    assert (first.stage, first.share) == ("tokenize", 1.0)
    assert (round(first.before_ns), round(first.after_ns)) == (10_000_000, 15_000_000)
    assert (second.stage, second.share) == ("decode", 0.0)

"""Nearest rank, log buckets, intervals."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrace.analytics.queries.attribution import Bucket, allocate, rank_window
from tailtrace.analytics.queries.percentiles import (
    bucket_of,
    bucket_value_ns,
    interval_ranks,
    needed,
    percentile_of_buckets,
    rank,
)

DURATIONS = st.lists(st.integers(1, 10**12), min_size=1, max_size=300)


def histogram(values: list[int]) -> list[tuple[int, int]]:
    return sorted(Counter(bucket_of(value) for value in values).items())


def test_nearest_rank_is_ceil_of_q_n() -> None:
    assert [rank(0.5, n) for n in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert rank(0.95, 20) == 19
    assert rank(0.99, 100) == 99
    assert rank(0.99, 101) == 100


def test_a_percentile_needs_ten_over_one_minus_q() -> None:
    assert (needed(0.5), needed(0.95), needed(0.99)) == (20, 200, 1000)
    assert percentile_of_buckets(0.99, [(700, 999)]).hollow
    assert not percentile_of_buckets(0.99, [(700, 1000)]).hollow


@given(DURATIONS, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_bucketed_percentile_is_within_one_percent(values: list[int], q: float) -> None:
    exact = sorted(values)[rank(q, len(values)) - 1]
    found = percentile_of_buckets(q, histogram(values)).value_ns
    assert found is not None
    # The middle of a bucket is 0.0099 of a value away at most; then it is rounded to whole nanoseconds.
    assert abs(found - exact) <= 0.02 / 2.02 * exact + 0.5 + 1e-6 * exact


@given(DURATIONS, DURATIONS)
def test_merging_histograms_is_the_histogram_of_all(one: list[int], other: list[int]) -> None:
    merged = sorted((Counter(dict(histogram(one))) + Counter(dict(histogram(other)))).items())
    assert percentile_of_buckets(0.5, merged) == percentile_of_buckets(0.5, histogram(one + other))


def test_no_value_bounds_the_tail_of_few() -> None:
    few = percentile_of_buckets(0.99, [(bucket_of(10**9), 50)])
    assert few.hollow
    assert few.high_ns is None
    assert few.low_ns == bucket_value_ns(bucket_of(10**9))


def test_an_empty_histogram_knows_nothing() -> None:
    empty = percentile_of_buckets(0.5, [])
    assert (empty.value_ns, empty.low_ns, empty.high_ns, empty.n, empty.hollow) == (None, None, None, 0, True)
    assert allocate(0.5, []) is None


def test_interval_ranks_of_the_median_of_a_hundred() -> None:
    assert interval_ranks(0.5, 100) == (40, 61)


@given(DURATIONS, st.sampled_from([0.5, 0.99]), st.randoms(use_true_random=False))
def test_parts_of_a_percentile_sum_to_it(values: list[int], q: float, random: object) -> None:
    by_bucket: dict[int, Bucket] = {}
    for value in values:
        k = bucket_of(value)
        queue = random.randint(0, value)  # type: ignore[attr-defined]
        held = by_bucket.get(k, Bucket(k, 0, [0, 0]))
        sums = held.stage_sums_ns
        by_bucket[k] = Bucket(k, held.n + 1, [sums[0] + queue, sums[1] + value - queue])
    parts = allocate(q, [by_bucket[k] for k in sorted(by_bucket)])
    assert parts is not None
    assert sum(parts.parts_ns) == parts.value_ns
    assert min(parts.parts_ns) >= 0
    assert 1 <= parts.rank_low <= rank(q, len(values)) <= parts.rank_high <= len(values)


def test_the_tail_is_attributed_to_what_the_tail_spent() -> None:
    usual = Bucket(bucket_of(10**8), 9_800, [0, 9_800 * 10**8])
    slow = Bucket(bucket_of(10**9), 200, [200 * 8 * 10**8, 200 * 2 * 10**8])
    parts = allocate(0.99, [usual, slow])
    assert parts is not None
    assert round(parts.parts_ns[0] / parts.value_ns, 3) == 0.8
    median = allocate(0.5, [usual, slow])
    assert median is not None
    assert median.parts_ns[0] == 0


def test_the_rank_window_widens_to_a_hundred() -> None:
    assert rank_window(0.5, 10_000) == (2500, 7500)
    assert rank_window(0.99, 10_000) == (9850, 9950)
    assert rank_window(0.99, 1000) == (940, 1000)


def slow_allocation(q: float, rows: list[tuple[int, list[int]]]) -> tuple[list[float], int]:
    """The definition, row by row: buckets in order, within a bucket every row is the mean of its bucket."""
    by_bucket: dict[int, list[list[int]]] = {}
    for value, parts in rows:
        by_bucket.setdefault(bucket_of(value), []).append(parts)
    means: list[list[float]] = []
    kinds: list[int] = []
    for k in sorted(by_bucket):
        held = by_bucket[k]
        means += [[sum(column) / len(held) for column in zip(*held, strict=True)]] * len(held)
        kinds += [k] * len(held)
    low, high = rank_window(q, len(rows))
    inside = means[low - 1 : high]
    return [sum(column) for column in zip(*inside, strict=True)], bucket_value_ns(kinds[rank(q, len(rows)) - 1])


@given(DURATIONS, st.sampled_from([0.5, 0.95, 0.99]), st.integers(0, 5), st.randoms(use_true_random=False))
def test_allocation_is_the_slow_one_whatever_was_merged_in_whatever_order(
    values: list[int], q: float, cuts: int, random: Any
) -> None:
    rows = []
    for value in values:
        queue = random.randint(0, value)
        rows.append((value, [queue, value - queue]))
    random.shuffle(rows)
    # Rolled up in several pieces, which are then merged in another order.
    edges = sorted(random.randint(0, len(rows)) for _ in range(cuts))
    pieces = [rows[a:b] for a, b in zip([0, *edges], [*edges, len(rows)], strict=True)]
    random.shuffle(pieces)
    merged: dict[int, Bucket] = {}
    for piece in pieces:
        for value, parts in piece:
            k = bucket_of(value)
            held = merged.get(k, Bucket(k, 0, [0, 0]))
            sums = [a + b for a, b in zip(held.stage_sums_ns, parts, strict=True)]
            merged[k] = Bucket(k, held.n + 1, sums)
    found = allocate(q, [merged[k] for k in sorted(merged)])
    sums, value = slow_allocation(q, rows)
    assert found is not None
    assert found.value_ns == value
    total = sum(sums)
    for part, exact in zip(found.parts_ns, sums, strict=True):
        assert part == pytest.approx(value * exact / total if total else part, abs=1.01, rel=1e-9)
    assert min(found.parts_ns) >= 0

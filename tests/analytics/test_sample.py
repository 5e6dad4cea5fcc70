"""Percentile and allocation of weighted rows: agreement with the histogram's, sums, order, bootstrap coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrace.analytics.statistics.contrast import critical, dominance, share_difference, wilson
from tailtrace.analytics.statistics.euler import rank_window, scaled, whole_numbers
from tailtrace.analytics.statistics.percentiles import rank
from tailtrace.analytics.statistics.sample import Sample, bootstrap

QS = st.sampled_from([0.5, 0.9, 0.95, 0.99])


def rows(seed: int, n: int, stages: int = 3) -> Any:
    return np.random.default_rng(seed).exponential(10, (n, stages))


@given(st.integers(0, 99), st.integers(1, 900), QS)
def test_unit_weights_are_nearest_rank_and_the_same_window(seed: int, n: int, q: float) -> None:
    parts = rows(seed, n)
    split = Sample(parts.sum(axis=1), parts).split(q, np.ones(n))
    assert split is not None
    assert split.value == np.sort(parts.sum(axis=1))[rank(q, n) - 1]
    assert (split.first + 1, split.last + 1) == rank_window(q, n)
    assert split.parts.sum() == pytest.approx(split.value)
    assert (split.parts >= 0).all()


@given(st.integers(0, 99), st.integers(1, 300), QS)
def test_a_whole_weight_is_that_many_rows(seed: int, n: int, q: float) -> None:
    parts = rows(seed, n)
    weights = np.random.default_rng(seed).integers(0, 4, n)
    if weights.sum() == 0:
        assert Sample(parts.sum(axis=1), parts).split(q, weights.astype(float)) is None
        return
    weighted = Sample(parts.sum(axis=1), parts).split(q, weights.astype(float))
    many = np.repeat(parts, weights, axis=0)
    repeated = Sample(many.sum(axis=1), many).split(q, np.ones(len(many)))
    assert weighted is not None
    assert repeated is not None
    assert weighted.value == repeated.value


@given(st.integers(0, 99), st.integers(2, 300), QS)
def test_the_order_of_rows_does_not_matter(seed: int, n: int, q: float) -> None:
    parts = rows(seed, n)
    mixed = np.random.default_rng(seed + 1).permutation(n)
    one = Sample(parts.sum(axis=1), parts).split(q, np.ones(n))
    other = Sample(parts.sum(axis=1)[mixed], parts[mixed]).split(q, np.ones(n))
    assert one is not None
    assert other is not None
    assert one.value == other.value
    assert one.parts == pytest.approx(other.parts)


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=40), st.integers(0, 10**12))
def test_scaled_parts_sum_exactly_and_are_never_negative(sums: list[float], whole: int) -> None:
    found = scaled(sums, whole)
    assert sum(found) == whole
    assert min(found) >= 0


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_signed_parts_sum_exactly_and_stay_within_one(exact: list[float]) -> None:
    whole = round(sum(exact))
    found = whole_numbers(exact, whole)
    assert sum(found) == whole
    assert sum(abs(one - other) > 1 for one, other in zip(found, exact, strict=True)) <= 1


def test_the_bootstrap_covers_what_it_says() -> None:
    """Of 60 samples of 400, about 95 % of the intervals of the mean hold the true one."""
    held = 0
    for seed in range(60):
        values = np.random.default_rng(seed).normal(5, 2, 400)
        low, high = bootstrap(400, lambda counts: np.array([counts @ values / counts.sum()]), seed=seed)  # noqa: B023
        held += bool(low[0] <= 5 <= high[0])
    assert 52 <= held <= 60


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.lists(st.integers(0, 9), min_size=2, max_size=40))
def test_dominance_is_that_of_all_pairs(slow: list[int], rest: list[int]) -> None:
    pairs = [(a > b) - (a < b) for a in slow for b in rest]
    found = dominance(np.array(slow), np.array(rest), 1.96)
    assert found.delta == pytest.approx(sum(pairs) / len(pairs))
    assert -1 <= found.low <= found.delta <= found.high <= 1
    back = dominance(np.array(rest), np.array(slow), 1.96)
    assert back.delta == pytest.approx(-found.delta)
    assert (back.low, back.high) == (pytest.approx(-found.high), pytest.approx(-found.low))


def test_intervals_are_those_of_the_books() -> None:
    # Newcombe 1998, table II (a): 56/70 against 48/80, method 10: 0.0524 to 0.3339.
    found = share_difference(56, 70, 48, 80, 1.959964)
    assert (found.delta, found.low, found.high) == (
        pytest.approx(0.2, abs=1e-4), pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4),
    )  # fmt: skip
    assert wilson(0, 10, 1.959964) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert critical(1) == pytest.approx(1.96, abs=0.001)
    assert critical(20) == pytest.approx(3.023, abs=0.001)

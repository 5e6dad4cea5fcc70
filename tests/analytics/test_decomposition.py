"""From A to B: sums, mix alone, service alone, both, Simpson's case, strata, twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrace.analytics.statistics.decomposition import Change, decompose, sides
from tailtrace.analytics.statistics.strata import match


def population(seed: int, n: int, long_share: float, slower: float) -> tuple[Any, Any, Any, Any]:
    """Values, parts (prefill, decode), weights and kinds: short answers decode 100, long ones 1000."""
    generator = np.random.default_rng(seed)
    kind = (generator.random(n) < long_share).astype(np.int64)
    decode = np.where(kind == 1, 1000.0, 100.0) * slower * generator.lognormal(0, 0.1, n)
    prefill = 50.0 * generator.lognormal(0, 0.1, n)
    parts = np.stack((prefill, decode), axis=1)
    return parts.sum(axis=1), parts, np.ones(n), kind


def change(a: tuple[Any, ...], b: tuple[Any, ...], q: float = 0.5) -> Change:
    strata = match([a[3]], [b[3]])
    found = decompose(q, *sides(a[:3], b[:3], strata), strata.count, replicates=40)
    assert found is not None
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000), st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.floats(0.5, 2.0),
    st.sampled_from([0.5, 0.95]),
)  # fmt: skip
def test_everything_sums_to_the_change(seed: int, share_a: float, share_b: float, slower: float, q: float) -> None:
    found = change(population(seed, 300, share_a, 1.0), population(seed + 1, 400, share_b, slower), q)
    a, b, delta, mix, new, vanished, within, *stages = found.value
    assert delta == pytest.approx(b - a)
    assert mix + new + vanished + within == pytest.approx(delta, abs=1e-6)
    assert sum(stages) == pytest.approx(within, abs=1e-6)
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()


def test_more_long_answers_are_traffic_alone() -> None:
    found = change(population(1, 4000, 0.3, 1.0), population(2, 4000, 0.8, 1.0))
    _, _, delta, mix, _, _, within, *_ = found.value
    assert delta > 800
    assert mix == pytest.approx(delta, rel=0.05)
    assert abs(within) < 0.05 * delta


def test_a_slower_decode_is_the_decode() -> None:
    found = change(population(1, 4000, 0.0, 1.0), population(2, 4000, 0.0, 1.5))
    _, _, delta, mix, _, _, within, prefill, decode = found.value
    assert delta == pytest.approx(50, abs=4)
    assert mix == 0
    assert within == pytest.approx(delta)
    assert decode == pytest.approx(50, abs=4)
    assert abs(prefill) < 3
    assert found.low[8] > 40


def test_traffic_can_hide_that_everything_got_slower() -> None:
    found = change(population(1, 4000, 0.6, 1.0), population(2, 4000, 0.4, 1.3))
    assert found.value[2] < 0 < found.value[6]
    assert found.simpson


def test_traffic_of_one_side_alone_is_new() -> None:
    a, b = population(1, 1000, 0.0, 1.0), population(2, 1000, 0.7, 1.0)
    _, _, delta, mix, new, vanished, within, *_ = change(a, b).value
    assert (mix, vanished) == (0, 0)
    assert new == pytest.approx(delta, rel=0.05)
    assert abs(within) < 5


def test_an_empty_side_has_no_change() -> None:
    a, none = population(1, 50, 0.5, 1.0), population(1, 0, 0.5, 1.0)
    strata = match([a[3]], [none[3]])
    assert decompose(0.5, *sides(a[:3], none[:3], strata), strata.count) is None


def match_slowly(a: list[list[int]], b: list[list[int]], fewest: int) -> list[Any]:
    """The definition, row by row: the key of each row's stratum, None for none."""
    taken: list[list[Any]] = [[None] * len(a[0]), [None] * len(b[0])]
    for level in range(len(a)):
        keys = (a[level], b[level])
        for kind in {*a[level], *b[level]}:
            rows = [[i for i, k in enumerate(keys[s]) if k == kind and taken[s][i] is None] for s in (0, 1)]
            if min(map(len, rows)) >= fewest:
                for s in (0, 1):
                    for i in rows[s]:
                        taken[s][i] = (level, kind)
    return taken[0] + taken[1]


@given(st.data())
def test_strata_are_those_of_the_definition(data: st.DataObject) -> None:
    n_a, n_b = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 25))
    levels = [
        [data.draw(st.lists(st.integers(0, kinds), min_size=n, max_size=n)) for n in (n_a, n_b)] for kinds in (8, 3, 1)
    ]
    a, b = [level[0] for level in levels], [level[1] for level in levels]
    fast = match([np.array(x) for x in a], [np.array(x) for x in b], fewest=3)
    slow = match_slowly(a, b, 3)
    found = [*fast.a.tolist(), *fast.b.tolist()]
    assert [x < 0 for x in found] == [x is None for x in slow]
    assert len(set(zip(found, slow, strict=True))) == len(set(found)) == len(set(slow))
    assert fast.count == len({x for x in slow if x is not None})

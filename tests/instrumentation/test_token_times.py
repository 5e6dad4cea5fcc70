"""Token times: exact buckets, stalls with their place, and folding that changes nothing."""

from __future__ import annotations

from math import ceil, log

from hypothesis import given
from hypothesis import strategies as st

from tailtrace.instrumentation.tokens import TokenTimes, bucket, histogram

gaps = st.lists(st.integers(0, 10**12), max_size=60)


@given(st.integers(2, 10**13))
def test_bucket_is_ceil_of_the_logarithm(gap: int) -> None:
    exact = log(gap) / log(1.02)
    # Floats cannot tell a gap from its bucket's edge within a few units in the last place.
    if abs(exact - round(exact)) > 1e-6:
        assert bucket(gap) == ceil(exact)


def test_bucket_edges() -> None:
    assert [bucket(gap) for gap in (0, 1, 2, 10_000_000)] == [0, 0, 36, 814]


@given(gaps)
def test_histogram_equals_one_search_a_gap(values: list[int]) -> None:
    slow: dict[int, int] = {}
    for value in values:
        slow[bucket(value)] = slow.get(bucket(value), 0) + 1
    assert histogram(sorted(values)) == slow


def test_gaps_longer_than_any_bucket_share_the_last() -> None:
    assert histogram([5, *(10**17 + at for at in range(4))]) == {bucket(5): 1, 1901: 4}


@given(gaps, st.integers(1, 59))
def test_folding_in_pieces_equals_folding_at_once(values: list[int], cut: int) -> None:
    times = [1_000]
    for value in values:
        times.append(times[-1] + value)
    whole, pieces = TokenTimes(), TokenTimes()
    whole.fold(list(times))
    for at in range(0, len(times), cut):
        pieces.fold(times[at : at + cut])
    assert pieces.counts == whole.counts
    assert (pieces.first_ns, pieces.last_ns, pieces.count) == (whole.first_ns, whole.last_ns, whole.count)
    assert sum(whole.counts.values()) == len(values)


def test_at_most_eight_stalls_and_the_longest_ones() -> None:
    times = [0]
    for index in range(200):
        times.append(times[-1] + (100_000_000 + index if index % 10 == 0 else 10_000_000))
    folded = TokenTimes()
    folded.fold(times)
    lengths = [int(piece.split(":")[1]) for piece in folded.stalls_text(0).split(",")]
    assert lengths == [100_000_000 + index for index in range(120, 200, 10)]

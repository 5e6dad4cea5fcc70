"""Counters seen from outside: wraps, resets, nonsense."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailtrace.instrumentation.sampler.cumulative import Cumulative, Step

S = 1_000_000_000


def test_counts_from_the_first_reading() -> None:
    counter = Cumulative()
    assert counter.update(500, S) is Step.FIRST
    assert counter.update(700, 2 * S) is Step.ADVANCED
    assert (counter.total, counter.delta, counter.elapsed_ns, counter.start_ns) == (200, 200, S, S)


def test_time_that_stands_still_is_no_reading() -> None:
    counter = Cumulative()
    counter.update(500, S)
    assert counter.update(700, S) is Step.STALE
    assert counter.update(700, 2 * S) is Step.ADVANCED


def test_32_bits_wrap_only_where_the_link_could_carry_it() -> None:
    counter = Cumulative()
    counter.update((1 << 32) - 10, S)
    assert counter.update(90, 2 * S, bits=32, most_per_s=1000) is Step.ADVANCED
    assert counter.total == 100
    assert counter.update(5, 3 * S, bits=32, most_per_s=1000) is Step.RESET
    assert (counter.total, counter.start_ns) == (0, 3 * S)


def test_64_bits_never_wrap() -> None:
    counter = Cumulative()
    counter.update((1 << 32) - 10, S)
    assert counter.update(90, 2 * S, bits=64, most_per_s=1000) is Step.RESET


def test_an_implausible_step_is_left_out_and_counting_goes_on() -> None:
    counter = Cumulative()
    counter.update(0, S)
    assert counter.update(1201, 2 * S, most_per_s=1000) is Step.IMPLAUSIBLE
    assert counter.update(1301, 3 * S, most_per_s=1000) is Step.ADVANCED
    assert counter.total == 100


def test_a_new_source_is_a_new_start() -> None:
    counter = Cumulative()
    counter.update(500, S)
    counter.reseed()
    assert counter.update(900, 2 * S) is Step.FIRST


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 20)), max_size=30))
def test_what_is_sent_never_goes_down_within_one_start(readings: list[tuple[int, int]]) -> None:
    counter, now, sent = Cumulative(), 0, {}
    for raw, elapsed in readings:
        now += elapsed
        if counter.update(raw, now, bits=32, most_per_s=1e12) is Step.ADVANCED:
            assert counter.total >= sent.get(counter.start_ns, 0)
            sent[counter.start_ns] = counter.total

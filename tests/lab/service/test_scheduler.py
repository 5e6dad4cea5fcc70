from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Service
from tailtrace.lab.service.scheduler import Scheduler, Sequence, blocks_for

SERVICE = Service("chat", max_batch=4, kv_blocks=64, chunk_tokens=128)


def make(number: int, prompt: int, target: int, prefix: int = 0, group: int = 0) -> Sequence:
    request = Request(number, "chat", 0, prompt, target, prefix, group, True, 0, -1, 0, 1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return Sequence(request, prompt, target)


def test_prompts_are_computed_in_chunks_within_the_step_budget_and_in_order() -> None:
    scheduler = Scheduler(SERVICE)
    first, second = make(1, 200, 3), make(2, 40, 3)
    scheduler.add(first)
    scheduler.add(second)
    batch = scheduler.schedule(0)
    assert [(s.request.number, n) for s, n in batch.prefill] == [(1, 128)]
    scheduler.advance(batch, 1)
    batch = scheduler.schedule(1)
    assert [(s.request.number, n) for s, n in batch.prefill] == [(1, 72), (2, 40)]
    scheduler.advance(batch, 1)
    assert (first.produced, second.produced) == (1, 1)
    batch = scheduler.schedule(2)
    assert len(batch.decodes) == 2
    assert scheduler.horizon(batch) == 2


def test_a_prompt_that_does_not_fit_blocks_those_behind_it() -> None:
    scheduler = Scheduler(SERVICE)
    scheduler.add(make(1, 100, 50))
    scheduler.advance(scheduler.schedule(0), 1)
    scheduler.add(make(2, 64 * 16 - 32, 5))
    scheduler.add(make(3, 8, 5))
    assert not scheduler.schedule(1).prefill
    assert scheduler.waiting_for_memory()


def test_the_youngest_is_preempted_recomputed_and_keeps_what_it_produced() -> None:
    scheduler = Scheduler(replace(SERVICE, kv_blocks=8))
    old, young = make(1, 48, 100), make(2, 48, 100)
    scheduler.add(old)
    scheduler.add(young)
    now = 0
    while not scheduler.preemptions:
        scheduler.advance(scheduler.schedule(now), 1)
        now += 1
    assert young.preempted_ns >= 0
    assert scheduler.running == [old]
    produced = young.produced
    assert young.prompt == 48 + produced
    scheduler.remove(old)
    scheduler.advance(scheduler.schedule(now), 1)
    assert young.request.preemptions == [(young.request.preemptions[0][0], now)]
    assert young.produced == produced + 1


def test_reserving_the_whole_answer_never_preempts() -> None:
    scheduler = Scheduler(replace(SERVICE, kv_blocks=8))
    scheduler.reserve_output = True
    scheduler.add(make(1, 48, 60))
    scheduler.add(make(2, 48, 60))
    scheduler.advance(scheduler.schedule(0), 1)
    assert len(scheduler.running) == 1
    assert scheduler.used_blocks == blocks_for(108)


def test_a_prefix_seen_before_is_not_computed_again() -> None:
    scheduler = Scheduler(SERVICE)
    for number in (1, 2):
        sequence = make(number, 100, 1, prefix=64, group=7)
        scheduler.add(sequence)
        batch = scheduler.schedule(0)
        scheduler.advance(batch, 1)
        scheduler.remove(sequence)
        assert batch.prefill_tokens == (100 if number == 1 else 36)


@given(
    jobs=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 80), st.booleans()), min_size=1, max_size=12),
    blocks=st.integers(4, 40), reserve=st.booleans(), stride=st.booleans(),
)  # fmt: skip
def test_everything_finishes_and_memory_is_never_overdrawn(
    jobs: list[tuple[int, int, bool]], blocks: int, reserve: bool, stride: bool
) -> None:
    """Whatever comes: blocks stay within the budget, add up, and are all free at the end; no sequence is lost."""
    scheduler = Scheduler(replace(SERVICE, kv_blocks=blocks))
    scheduler.reserve_output = reserve
    left = []
    for number, (prompt, target, abort) in enumerate(jobs):
        sequence = make(number, prompt, target)
        scheduler.add(sequence)
        left.append((sequence, abort))
    alive = {sequence.request.number: sequence for sequence, _ in left}
    for now in range(20_000):
        if not alive:
            break
        batch = scheduler.schedule(now)
        assert batch or scheduler.waiting
        steps = scheduler.horizon(batch) if stride and batch.decodes and not batch.prefill else 1
        scheduler.advance(batch, steps)
        held = sum(s.blocks for s in scheduler.running)
        assert held == scheduler.used_blocks <= blocks
        assert len(scheduler.running) <= SERVICE.max_batch
        for sequence, abort in left:
            if sequence.request.number in alive and (sequence.produced >= sequence.target or (abort and now == 7)):
                scheduler.remove(sequence)
                del alive[sequence.request.number]
    assert not alive
    assert scheduler.used_blocks == 0
    assert not scheduler.running
    assert not scheduler.waiting

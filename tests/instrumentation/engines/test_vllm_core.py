"""The engine core's half of the vLLM hooks: stages without gaps, preemption, aborts, steps."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from fake_vllm import modules, request, scheduled
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

from tailtrace.instrumentation import clock, record, runtime
from tailtrace.instrumentation.engines.vllm import core, hook
from tailtrace.instrumentation.settings import Settings
from tailtrace.instrumentation.testing import FakeClock

TRACE, PARENT = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"
SENT_NS = 1_700_000_000_000_000_000


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the hooks hand over; nothing is sent."""
    kept: list[Any] = []
    monkeypatch.setattr(core, "_core", core._Core())
    monkeypatch.setattr(runtime, "active", runtime.Runtime(Settings(service_name="vllm", role="scheduler")))
    monkeypatch.setattr(record, "submit", kept.append)
    return kept


@pytest.fixture
def now() -> Iterator[FakeClock]:
    with FakeClock() as fake:
        yield fake


@pytest.fixture
def engine(items: list[Any], now: FakeClock) -> SimpleNamespace:
    vllm = modules(now)
    hook(vllm.core)
    hook(vllm.scheduler)
    return SimpleNamespace(core=vllm.core.EngineCore(), scheduler=vllm.scheduler.Scheduler())


def arrive(engine: SimpleNamespace, name: str, **more: Any) -> Any:
    one = request(name, **more)
    one.trace_headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tailtrace-sent": str(SENT_NS)}
    engine.core.preprocess_add_request(one)
    engine.scheduler.requests[name] = one
    return one


def step(engine: SimpleNamespace, now: FakeClock, output: Any, work_ms: float, ended: tuple[str, ...] = ()) -> None:
    engine.scheduler.next = output
    chosen = engine.scheduler.schedule()
    now.advance_ms(work_ms)
    engine.scheduler.update_from_output(chosen, ended)


def spans(item: Any) -> list[Any]:
    return list(ScopeSpans.FromString(item.encode(clock.anchor_ns())).spans)


def times(item: Any) -> list[tuple[str, float, float]]:
    """Name, start and end in ms since the request was handed over."""
    return [
        (span.name, (span.start_time_unix_nano - SENT_NS) / 1e6, (span.end_time_unix_nano - SENT_NS) / 1e6)
        for span in spans(item)
    ]


def test_stages_follow_each_other_from_the_hand_over_to_the_last_output(
    engine: SimpleNamespace, items: list[Any], now: FakeClock
) -> None:
    now.advance_ms(2)
    arrive(engine, "a")
    now.advance_ms(10)  # waits in the input queue for the running step
    step(engine, now, scheduled(new=("a",), tokens={"a": 5}), work_ms=20)
    step(engine, now, scheduled(tokens={"a": 1}), work_ms=7)
    step(engine, now, scheduled(tokens={"a": 1}), work_ms=7, ended=("a",))
    finished = items[-1]
    assert times(finished) == [
        ("engine_submit", 0, 3),
        ("queue", 3, 14),
        ("prefill", 14, 34),
        ("decode", 34, 50),
    ]
    first = spans(finished)[0]
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, PARENT)
    assert core._core.requests == {}


def test_a_wait_after_a_preemption_is_a_stage_of_its_own(
    engine: SimpleNamespace, items: list[Any], now: FakeClock
) -> None:
    one = arrive(engine, "a")
    step(engine, now, scheduled(new=("a",), tokens={"a": 5}), work_ms=4)
    now.advance_ms(1)
    engine.scheduler._preempt_request(one, 0.0)
    now.advance_ms(30)
    step(engine, now, scheduled(resumed=("a",), tokens={"a": 6}), work_ms=5, ended=("a",))
    assert ("preempted", 7, 38) in times(items[-1])
    steps = items[:-1]
    attributes = {pair.key: pair.value for pair in spans(steps[-1])[0].attributes}
    assert attributes["tailtrace.preempted"].string_value == "a"
    assert attributes["tailtrace.prefill"].string_value == "a:6"


def test_a_preemption_is_told_by_the_step_that_made_it_alone(
    engine: SimpleNamespace, items: list[Any], now: FakeClock
) -> None:
    one = arrive(engine, "a")
    step(engine, now, scheduled(new=("a",), tokens={"a": 5}), work_ms=4)
    engine.scheduler._preempt_request(one, 0.0)
    step(engine, now, scheduled(resumed=("a",), tokens={"a": 6}), work_ms=5)
    step(engine, now, scheduled(tokens={"a": 1}), work_ms=5)
    told = [{pair.key: pair.value.string_value for pair in spans(item)[0].attributes} for item in items]
    assert [attributes.get("tailtrace.preempted") for attributes in told] == [None, "a", None]


def test_an_abort_between_steps_ends_the_stage_that_it_was_in(
    engine: SimpleNamespace, items: list[Any], now: FakeClock
) -> None:
    one = arrive(engine, "a")
    now.advance_ms(9)
    engine.scheduler._free_request(one)
    assert times(items[0]) == [("engine_submit", 0, 1), ("queue", 1, 10)]
    outcomes = {pair.key: pair.value.string_value for span in spans(items[0]) for pair in span.attributes}
    assert outcomes["tailtrace.outcome"] == "cancelled"


def test_pooling_is_one_forward(engine: SimpleNamespace, items: list[Any], now: FakeClock) -> None:
    arrive(engine, "a").pooling_params = object()
    core._core.requests["a"].forward = True
    step(engine, now, scheduled(new=("a",), tokens={"a": 5}), work_ms=3, ended=("a",))
    assert [name for name, _, _ in times(items[-1])] == ["engine_submit", "queue", "forward"]


def test_a_step_says_what_ran_and_what_waited(engine: SimpleNamespace, items: list[Any], now: FakeClock) -> None:
    arrive(engine, "a")
    arrive(engine, "b")
    engine.scheduler.running, engine.scheduler.waiting = ["a", "b"], ["c", "d", "e"]
    step(engine, now, scheduled(new=("a",), tokens={"a": 5}), work_ms=3)
    step(engine, now, scheduled(new=("b",), tokens={"a": 1, "b": 5}), work_ms=3)
    (span,) = spans(items[-1])
    attributes = {pair.key.removeprefix("tailtrace."): pair.value for pair in span.attributes}
    numbers = {name: value.int_value for name, value in attributes.items() if value.WhichOneof("value") == "int_value"}
    assert numbers == {
        "running": 2, "waiting": 3, "waiting_capacity": 3, "waiting_deferred": 0, "prefill_tokens": 5,
        "decode_tokens": 1,
    }  # fmt: skip
    assert attributes["prefill"].string_value == "b:5"
    assert attributes["kv_usage"].double_value == 0.25
    assert span.end_time_unix_nano - span.start_time_unix_nano == 4_000_000


def test_a_request_that_is_not_sampled_leaves_nothing(
    engine: SimpleNamespace, items: list[Any], now: FakeClock
) -> None:
    one = request("a")
    one.trace_headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    engine.core.preprocess_add_request(one)
    assert core._core.requests == {}


def test_a_request_whose_headers_name_no_caller_has_no_spans(
    engine: SimpleNamespace, items: list[Any], now: FakeClock
) -> None:
    one = request("a")
    one.trace_headers = {"traceparent": f"00-{'x' * 32}-{PARENT}-01"}
    engine.core.preprocess_add_request(one)
    engine.scheduler.requests["a"] = one
    step(engine, now, scheduled(new=("a",), tokens={"a": 5}), work_ms=4, ended=("a",))
    assert [len(spans(item)) for item in items] == [1, 0]


def test_a_fault_of_ours_never_reaches_the_engine(engine: SimpleNamespace, items: list[Any], now: FakeClock) -> None:
    engine.scheduler.next = object()  # nothing of what the hook reads
    assert engine.scheduler.schedule() is engine.scheduler.next


def test_compiling_a_grammar_is_no_queue(engine: SimpleNamespace, items: list[Any], now: FakeClock) -> None:
    compiling: Future[None] = Future()
    arrive(engine, "a", structured_output_request=SimpleNamespace(_grammar=compiling))
    now.advance_ms(8)
    compiling.set_result(None)
    now.advance_ms(5)  # there, and the engine is busy
    step(engine, now, scheduled(new=("a",), tokens={"a": 5}), work_ms=20, ended=("a",))
    assert times(items[-1])[1:] == [("grammar", 1, 9), ("queue", 9, 15), ("prefill", 15, 35)]


def test_a_request_that_leaves_while_its_grammar_is_compiled_never_queued(
    engine: SimpleNamespace, items: list[Any], now: FakeClock
) -> None:
    compiling: Future[None] = Future()
    one = arrive(engine, "a", structured_output_request=SimpleNamespace(_grammar=compiling))
    now.advance_ms(8)
    engine.scheduler._free_request(one)
    assert times(items[-1])[1:] == [("grammar", 1, 9)]
    compiling.set_result(None)


@pytest.mark.parametrize(
    ("parameters", "stage"), [(None, "kv_load"), ({"do_remote_prefill": True}, "kv_transfer")]
)  # fmt: skip
def test_the_fetch_of_a_cache_is_no_queue(
    engine: SimpleNamespace, items: list[Any], now: FakeClock, parameters: Any, stage: str
) -> None:
    one = arrive(engine, "a", kv_transfer_params=parameters, status=SimpleNamespace(name="WAITING_FOR_REMOTE_KVS"))
    engine.scheduler.connector = object()
    engine.scheduler.kv_holding_waiting = [one]
    now.advance_ms(4)
    step(engine, now, scheduled(), work_ms=10)  # it is chosen, and its cache has to come first
    step(engine, now, scheduled(), work_ms=10)
    engine.scheduler._update_from_kv_xfer_finished(SimpleNamespace(finished_recving={"a", "unknown"}))
    one.status = SimpleNamespace(name="WAITING")
    now.advance_ms(3)
    step(engine, now, scheduled(new=("a",), tokens={"a": 5}), work_ms=20, ended=("a",))
    assert times(items[-1])[1:] == [("queue", 1, 6), (stage, 6, 27), ("queue", 27, 31), ("prefill", 31, 51)]


def test_a_fetch_that_never_ends_lasts_until_the_request_leaves(
    engine: SimpleNamespace, items: list[Any], now: FakeClock
) -> None:
    one = arrive(engine, "a", kv_transfer_params=None, status=SimpleNamespace(name="WAITING_FOR_REMOTE_KVS"))
    engine.scheduler.connector = object()
    engine.scheduler.waiting = [one]
    step(engine, now, scheduled(), work_ms=10)
    engine.scheduler._free_request(one)
    assert times(items[-1])[1:] == [("queue", 1, 2), ("kv_load", 2, 12)]

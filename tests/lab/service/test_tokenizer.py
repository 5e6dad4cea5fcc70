from __future__ import annotations

import pytest

from tailtrace.lab.constants import Constants
from tailtrace.lab.faults import Faults
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Fault, Fleet, Scenario, Service, Traffic
from tailtrace.lab.service.tokenizer import Tokenizer

SERVICE = Service("chat", tokenizer_threads=2)
HOUR = 3600 * 10**9


def pool(*faults: Fault) -> tuple[Tokenizer, Request]:
    scenario = Scenario("x", fleet=Fleet(services=(SERVICE,)), traffic=(Traffic("chat", 1.0),), faults=faults)
    request = Request(1, "chat", 0, 1000, 1, 0, 0, True, 0, -1, 0, 1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return Tokenizer(SERVICE, 0, Constants.draw(1), Faults(scenario, HOUR)), request


def test_a_third_prompt_waits_for_one_of_two_threads() -> None:
    tokenizer, request = pool()
    work = tokenizer.work_ns(request, 0)
    assert [tokenizer.done_ns(request, 0) for _ in range(3)] == [work, work, 2 * work]
    assert tokenizer.done_ns(request, 10 * work) == 11 * work


def test_the_fault_leaves_one_slow_thread() -> None:
    tokenizer, request = pool(Fault("tokenizer_thread", at=10.0, for_=10.0))
    before, during = tokenizer.work_ns(request, 9 * 10**9), tokenizer.work_ns(request, 10 * 10**9)
    assert during == pytest.approx(100 * before, rel=1e-6)
    at = 10 * 10**9
    assert [tokenizer.done_ns(request, at) - at for _ in range(2)] == [during, 2 * during]
    assert tokenizer.work_ns(request, 20 * 10**9) == before

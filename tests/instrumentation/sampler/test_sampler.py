"""The sampler as a whole: a hanging driver call, calls that block, its own cost, and no sampler without OTLP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pynvml
import pytest

from tailtrace.instrumentation.sampler import sampler as sampler_module
from tailtrace.instrumentation.sampler import throughput
from tailtrace.instrumentation.sampler.sampler import Sampler


class Running:
    """A sampler in a thread, with the points it put so far."""

    def __init__(self, **options: Any) -> None:
        self.points: list[Any] = []
        self.sampler = Sampler(self.points.extend, **options)
        self._thread = threading.Thread(target=self.sampler.run, daemon=True)
        self._thread.start()

    def until(self, found: Callable[[Any], bool]) -> Any:
        """The first point for which it holds; fails after 30 s."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for point in list(self.points):
                if found(point):
                    return point
            time.sleep(0.01)
        raise AssertionError(f"did not come; {sorted({p.name for p in self.points})} did")

    def end(self) -> None:
        self.sampler.stop()
        self._thread.join(10)


def test_a_call_that_hangs_is_said_while_the_host_is_still_read(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "STUCK_S", 0.2)
    monkeypatch.setattr(sampler_module, "HOST_S", 0.05)
    stub.set(gpus=1, **{"sleep_ms.nvmlDeviceGetUtilizationRates": 1500})
    running = Running()
    try:
        said = running.until(lambda p: p.attributes.get("tailtrace.reason") == "call_stuck")
        assert said.attributes["tailtrace.metric"] == "hw.gpu.*"
        running.until(lambda p: p.name.startswith("tailtrace.host."))  # the first look only says from where to count
    finally:
        running.end()


def test_blocking_pcie_calls_are_made_in_a_thread_and_in_bytes(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "EVERY_S", 0.05)
    monkeypatch.setattr(sampler_module, "HOST_S", 0.05)
    stub.set(gpus=1, arch=7, **{"field.197.err": 3, "field.198.err": 3})
    callers: set[str] = set()
    called = pynvml.nvmlDeviceGetPcieThroughput

    def recorded(handle: Any, counter: int) -> int:
        callers.add(threading.current_thread().name)
        return int(called(handle, counter))

    monkeypatch.setattr(pynvml, "nvmlDeviceGetPcieThroughput", recorded)
    running = Running(interval_s=0.1)
    try:
        point = running.until(
            lambda p: p.name == "tailtrace.link.bandwidth" and p.attributes["network.io.direction"] == "receive"
            and p.attributes["tailtrace.link"] == "pcie"
        )  # fmt: skip
        assert point.attributes["tailtrace.source"] == "throughput"
        assert point.value == 2_000_000 * 1000
    finally:
        running.end()
    assert callers == {"tailtrace-pcie"}


def test_a_thousandfold_pcie_answer_is_left_out_and_counted(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "EVERY_S", 0.05)
    stub.set(gpus=1, arch=7, pcie_kb=2_000_000_000, **{"field.197.err": 3, "field.198.err": 3})
    running = Running(interval_s=0.1)
    try:
        deadline = time.monotonic() + 30
        while not running.sampler.drops.counts.get("implausible") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert running.sampler.drops.counts["implausible"] > 0
    finally:
        running.end()
    assert not [
        p for p in running.points
        if p.name == "tailtrace.link.bandwidth" and p.attributes["tailtrace.source"] == "throughput"
    ]  # fmt: skip


def test_a_slow_driver_makes_fewer_samples_and_the_rate_it_really_has_is_told(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "HOST_S", 0.05)
    monkeypatch.setattr(sampler_module, "OWN_S", 1.5)
    stub.set(gpus=1, **{"sleep_ms.nvmlDeviceGetFieldValues": 300})
    running = Running(interval_s=0.1)
    try:
        running.until(lambda p: p.name == "tailtrace.sampler.interval" and p.value >= 0.3)
    finally:
        running.end()
    # No backlog: samples are as far apart as the calls take, never bunched to catch up.
    stamps = [p.time_unix_ns for p in running.points if p.name == "tailtrace.gpu.clock_events"]
    assert min(b - a for a, b in pairwise(stamps)) > 250_000_000


def test_its_own_cost_is_a_metric(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "HOST_S", 0.05)
    monkeypatch.setattr(sampler_module, "OWN_S", 0.2)
    stub.set(gpus=1)
    running = Running(interval_s=0.1)
    try:
        assert running.until(lambda p: p.name == "tailtrace.sampler.cpu").value > 0
        running.until(lambda p: p.attributes.get("tailtrace.call") == "nvmlDeviceGetFieldValues")
    finally:
        running.end()


def test_without_gpus_the_host_is_read_all_the_same(stub: Any) -> None:
    stub.set(init=12)
    running = Running()
    try:
        absent = running.until(
            lambda p: p.name == "tailtrace.absent" and p.attributes["tailtrace.metric"] == "hw.gpu.*"
        )
        assert absent.attributes["tailtrace.reason"] == "no_library"
        running.until(lambda p: p.name.startswith("tailtrace.host."))
    finally:
        running.end()

"""GPUs through the real pynvml on the C stub: values and units, and every fault that the field has seen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tailtrace.instrumentation.sampler.catalogue import METRICS
from tailtrace.instrumentation.sampler.gpus import DriverReplaced
from tailtrace.instrumentation.sampler.host import pids

GPU0 = "GPU-00000000-0000-0000-0000-000000000000"
GPU1 = "GPU-00000001-0000-0000-0000-000000000000"


def latest(points: list[Any], name: str, uuid: str = GPU0, **attributes: str) -> Any:
    """The last value of a series, None where there is no point."""
    wanted = {"hw.id": uuid, **{key.replace("__", "."): value for key, value in attributes.items()}}
    values = [p.value for p in points if p.name == name and wanted.items() <= p.attributes.items()]
    return values[-1] if values else None


def names(points: list[Any], uuid: str = GPU0) -> set[str]:
    return {point.name for point in points if point.attributes.get("hw.id") == uuid}


def apart(host: Any) -> list[Any]:
    """Two ticks with time between them on the stub's own clock, so that counters and GPM have something to say."""
    points = host.tick()
    time.sleep(0.11)
    return list(points) + host.tick()


def test_values_in_the_units_of_the_catalogue(host: Any) -> None:
    points = apart(host)
    assert latest(points, "hw.gpu.utilization") == 0.5
    assert latest(points, "hw.gpu.memory.usage") == 40 << 30
    assert latest(points, "hw.gpu.memory.limit") == 80 << 30
    assert latest(points, "hw.gpu.memory.utilization") == 0.5
    assert latest(points, "tailtrace.gpu.memory.reserved") == 1 << 30
    assert latest(points, "hw.power", tailtrace__source="field") == 345.0
    assert latest(points, "hw.temperature") == 61
    assert latest(points, "tailtrace.gpu.clock.sm") == 1_755_000_000
    assert latest(points, "tailtrace.gpu.clock_events") == 4
    assert latest(points, "tailtrace.gpu.sm_active") == pytest.approx(0.7)
    assert latest(points, "tailtrace.gpu.dram_active") == pytest.approx(0.55)
    assert latest(points, "tailtrace.link.active") == 18
    assert latest(points, "tailtrace.link.limit", tailtrace__link="pcie") == pytest.approx(63.008e9)
    assert latest(points, "tailtrace.link.limit", tailtrace__link="nvlink") == pytest.approx(18 * 26562e6)


def test_every_metric_of_gpus_and_links_is_really_read(stub: Any, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pids, "in_first_namespace", lambda proc=None: True)
    stub.set(pid=os.getpid())
    read = {(p.name, p.unit) for p in apart(host)}
    stub.set(**{"ecc.0": 1, "replays": 4})
    read |= {(p.name, p.unit) for p in host.tick(3, seconds=31.0)}
    assert read == {(m.name, m.unit) for m in METRICS if m.room in ("gpu", "link")}


def test_rates_come_from_the_counters_own_time_stamps(host: Any) -> None:
    points = apart(host)
    name, way = "tailtrace.link.bandwidth", "network__io__direction"
    pcie = {"tailtrace__link": "pcie"}
    nvlink = {"tailtrace__link": "nvlink"}
    assert latest(points, name, **pcie, **{way: "transmit"}) == pytest.approx(3e9, rel=1e-3)
    assert latest(points, name, **pcie, **{way: "receive"}) == pytest.approx(4e9, rel=1e-3)
    assert latest(points, name, **nvlink, **{way: "transmit"}) == pytest.approx(1e9, rel=1e-3)


def test_first_samples_are_absent_and_never_zero(host: Any) -> None:
    first = host.tick()
    assert "tailtrace.link.io" not in names(first)
    assert "hw.energy" not in names(first)
    assert "tailtrace.gpu.sm_active" not in names(first)


@pytest.mark.parametrize("code", [3, 4, 13, 999, 2])
def test_one_unreadable_field_loses_nothing_else(stub: Any, host: Any, code: int) -> None:
    stub.set(**{"field.197.err": code})
    points = apart(host)
    transmit = {"tailtrace__link": "pcie", "network__io__direction": "transmit"}
    assert latest(points, "tailtrace.link.io", **transmit) is None
    assert latest(points, "tailtrace.link.io", tailtrace__link="pcie", network__io__direction="receive") is not None
    assert latest(points, "hw.energy") is not None
    reason = host.absences.reasons(GPU0)["tailtrace.link.io/pcie/transmit"]
    assert reason == {3: "not_supported", 4: "no_permission", 13: "old_driver", 999: "unknown_error",
                      2: "unknown_to_driver"}[code]  # fmt: skip


FIELDS = {
    74: "tailtrace.gpu.throttle/sw_power_cap", 76: "tailtrace.gpu.throttle/sync_boost",
    82: "tailtrace.gpu.memory.temperature", 83: "hw.energy", 138: "tailtrace.link.io/nvlink/transmit",
    139: "tailtrace.link.io/nvlink/receive", 140: "tailtrace.link.raw_io/nvlink/transmit",
    141: "tailtrace.link.raw_io/nvlink/receive", 186: "hw.power",
    197: "tailtrace.link.io/pcie/transmit", 198: "tailtrace.link.io/pcie/receive",
    269: "tailtrace.gpu.throttle/sw_thermal", 270: "tailtrace.gpu.throttle/hw_thermal",
    271: "tailtrace.gpu.throttle/hw_power_brake",
}  # fmt: skip


def told(points: list[Any]) -> set[tuple[str, ...]]:
    return {(p.name, *sorted(f"{k}={v}" for k, v in p.attributes.items() if k != "tailtrace.source")) for p in points}


@pytest.mark.parametrize(("number", "metric"), FIELDS.items())
def test_each_field_fails_alone(stub: Any, new_host: Callable[..., Any], number: int, metric: str) -> None:
    stub.set(gpus=1)
    whole = told(apart(new_host()))
    stub.set(**{f"field.{number}.err": 3})
    host = new_host()
    # Its own series, and the rate made of it; power has a second source.
    lost = whole - told(apart(host))
    assert len(lost) == (0 if metric == "hw.power" else 2 if metric.startswith("tailtrace.link.io") else 1)
    if metric != "hw.power":
        assert host.absences.reasons(GPU0)[metric] == "not_supported"


def test_a_field_that_says_the_gpu_is_lost_ends_the_gpu(stub: Any, host: Any) -> None:
    stub.set(gpus=1)
    host.tick()
    stub.set(**{"field.83.err": 15})
    points = host.tick()
    assert latest(points, "hw.status", hw__state="failed", tailtrace__reason="gpu_lost") == 1


SYMBOLS = {
    "nvmlDeviceGetUtilizationRates": "hw.gpu.utilization",
    "nvmlDeviceGetTemperatureV": "hw.temperature",
    "nvmlDeviceGetClockInfo": "tailtrace.gpu.clock.sm",
    "nvmlDeviceGetCurrentClocksEventReasons": "tailtrace.gpu.clock_events",
    "nvmlDeviceGetEnforcedPowerLimit": "tailtrace.gpu.power.limit",
    "nvmlDeviceGetRemappedRows": "tailtrace.gpu.remapped_rows",
    "nvmlDeviceGetPcieReplayCounter": "tailtrace.link.replays",
    "nvmlGpmSampleGet": "tailtrace.gpu.sm_active",
    "nvmlGpmMetricsGet": "tailtrace.gpu.sm_active",
    "nvmlGpmQueryDeviceSupport": "tailtrace.gpu.sm_active",
    "nvmlDeviceGetComputeRunningProcesses_v3": "tailtrace.gpu.processes",
}


@pytest.mark.parametrize(("symbol", "metric"), SYMBOLS.items())
@pytest.mark.parametrize(("code", "reason"), [(3, "not_supported"), (4, "no_permission"), (999, "unknown_error")])
def test_a_failing_call_makes_its_metric_absent_with_the_reason(
    stub: Any, host: Any, symbol: str, metric: str, code: int, reason: str
) -> None:
    stub.set(**{f"err.{symbol}": code})
    points = apart(host)
    assert metric not in names(points)
    assert host.absences.reasons(GPU0)[metric] == reason
    assert len(names(points)) > 10


def test_an_absence_is_said_at_once_and_then_once_an_hour(stub: Any, host: Any) -> None:
    stub.set(**{"err.nvmlDeviceGetUtilizationRates": 3})
    host.tick()
    now, hour = 1_700_000_000_000_000_000, 3_600_000_000_000

    def said(at: int) -> list[str]:
        return [p.attributes["tailtrace.metric"] for p in host.absences.points(at) if p.attributes["hw.id"] == GPU0]

    assert "hw.gpu.utilization" in said(now)
    assert said(now + hour - 1) == []
    assert "hw.gpu.utilization" in said(now + hour)


def test_a_value_that_comes_back_is_no_longer_absent(stub: Any, host: Any) -> None:
    stub.set(**{"err.nvmlDeviceGetUtilizationRates": 999})
    host.tick()
    stub.set(**{"err.nvmlDeviceGetUtilizationRates": 0})
    assert latest(host.tick(2, seconds=12.0), "hw.gpu.utilization") == 0.5
    assert "hw.gpu.utilization" not in host.absences.reasons(GPU0)


@pytest.mark.parametrize(("code", "reason"), [(3, "not_supported"), (4, "no_permission"), (999, "unknown_error")])
def test_memory_that_no_version_gives_is_absent(stub: Any, host: Any, code: int, reason: str) -> None:
    stub.set(**{"err.nvmlDeviceGetMemoryInfo_v2": code, "err.nvmlDeviceGetMemoryInfo": code})
    assert "hw.gpu.memory.usage" not in names(apart(host))
    assert host.absences.reasons(GPU0)["hw.gpu.memory.usage"] == reason


@pytest.mark.parametrize("code", [3, 13, 25])
def test_where_memory_v2_is_not_there_v1_is_read(stub: Any, host: Any, code: int) -> None:
    stub.set(**{"err.nvmlDeviceGetMemoryInfo_v2": code})
    points = host.tick()
    assert latest(points, "hw.gpu.memory.usage") == 41 << 30
    assert latest(points, "tailtrace.gpu.memory.reserved") is None
    assert host.absences.reasons(GPU0)["tailtrace.gpu.memory.reserved"] == "no_memory_v2"


@pytest.mark.parametrize(
    ("symbol", "metric", "value"),
    [("nvmlDeviceGetMemoryInfo_v2", "hw.gpu.memory.usage", 41 << 30),
     ("nvmlDeviceGetTemperatureV", "hw.temperature", 60),
     ("nvmlDeviceGetCurrentClocksEventReasons", "tailtrace.gpu.clock_events", 8)],
)  # fmt: skip
def test_an_old_driver_without_the_function_is_asked_the_old_way(
    stub: Any, new_host: Callable[..., Any], symbol: str, metric: str, value: int
) -> None:
    stub.without(symbol)
    assert latest(new_host().tick(), metric) == value


def test_throttle_fields_are_not_trusted_before_driver_580(stub: Any, host: Any) -> None:
    stub.set(driver=575)
    reasons = {p.attributes["tailtrace.reason"] for p in apart(host) if p.name == "tailtrace.gpu.throttle"}
    assert reasons == {"sw_power_cap", "sync_boost"}
    assert host.absences.reasons(GPU0)["tailtrace.gpu.throttle/hw_thermal"] == "old_driver"


def test_ampere_has_no_gpm(stub: Any, host: Any) -> None:
    stub.set(arch=7)
    points = apart(host)
    assert "tailtrace.gpu.sm_active" not in names(points)
    assert host.absences.reasons(GPU0)["tailtrace.gpu.sm_active"] == "not_supported"
    assert latest(points, "hw.gpu.utilization") == 0.5


def test_without_gpm_every_reading_that_the_driver_kept_is_sent(stub: Any, host: Any) -> None:
    stub.set(gpus=1, arch=7)
    host.tick(1, seconds=2.0)
    time.sleep(0.6)
    points = [p for p in host.tick() if p.name == "hw.gpu.utilization"]
    assert {(p.value, p.attributes["tailtrace.source"]) for p in points} == {(0.5, "samples")}
    stamps = [p.time_unix_ns for p in points]
    assert len(set(stamps)) == len(stamps) >= 3
    # Each in the middle of its sixth of a second, none told twice.
    assert all(b - a == pytest.approx(166_667_000) for a, b in pairwise(stamps[1:]))
    time.sleep(0.2)
    again = [p for p in host.tick(9) if p.name == "hw.gpu.utilization"]
    assert again
    assert min(p.time_unix_ns for p in again) > max(stamps)


@pytest.mark.parametrize("fault", [{"err.nvmlDeviceGetSamples": 3}, {"samples.SKEW": 3_600_000_000}])
def test_where_the_driver_keeps_no_readings_its_rates_are_read(stub: Any, host: Any, fault: dict[str, float]) -> None:
    stub.set(gpus=1, arch=7, **fault)
    host.tick(1, seconds=2.0)
    time.sleep(0.35)
    assert latest(host.tick(), "hw.gpu.utilization", tailtrace__source="rates") == 0.5
    assert "hw.gpu.utilization" not in host.absences.reasons(GPU0)


def test_a_guests_share_of_a_gpu_is_named_and_what_it_cannot_tell_is_absent(stub: Any, host: Any) -> None:
    stub.set(gpus=1, vgpu=1)
    points = apart(host)
    assert latest(points, "hw.status", tailtrace__virtualization="vgpu") == 1
    assert latest(points, "hw.gpu.utilization") == 0.5
    assert latest(points, "hw.gpu.memory.usage") == 41 << 30
    assert not names(points) & {"hw.power", "tailtrace.gpu.sm_active", "tailtrace.link.io", "tailtrace.gpu.clock.sm"}
    reasons = host.absences.reasons(GPU0)
    for metric in ("hw.power", "tailtrace.gpu.sm_active", "tailtrace.gpu.clock.sm", "hw.errors/ecc_corrected",
                   "tailtrace.link.io/pcie/transmit", "tailtrace.link.generation", "hw.temperature"):  # fmt: skip
        assert reasons[metric] == "not_supported"


def test_instances_that_come_and_go_are_listed_anew(stub: Any, host: Any) -> None:
    stub.set(gpus=2, **{"mig.0": 2})
    host.tick(2)
    stub.set(**{"mig.0": 1})
    later = host.tick(3, seconds=31.0)
    first, second = (f"MIG-00000000-0000-0000-0000-00000000000{n}" for n in (1, 2))
    assert latest(later, "hw.gpu.memory.usage", first) == 5 << 30
    assert names(later[-200:], second) == set()
    assert host.absences.reasons(second) == {}
    stub.set(**{"mig.0": 0})
    assert latest(host.tick(3, seconds=31.0), "hw.gpu.utilization") == 0.5
    assert not [p for p in host.tick(2) if p.attributes["hw.id"].startswith("MIG-")]


def test_a_removed_instance_is_not_waited_for(stub: Any, host: Any) -> None:
    stub.set(gpus=2, **{"mig.0": 2})
    host.tick(2)
    stub.set(**{"mig.0": 1, "err.nvmlDeviceGetMemoryInfo_v2.0": 28})
    host.tick(2, seconds=2.0)
    assert "MIG-00000000-0000-0000-0000-000000000002" in host.gpus._lost
    stub.set(**{"err.nvmlDeviceGetMemoryInfo_v2.0": 0})
    assert latest(host.tick(3, seconds=2.0), "hw.power") == 345.0
    assert host.gpus._lost == {}


def test_a_gpu_that_did_not_answer_at_the_start_is_said_and_comes_later(stub: Any, host: Any) -> None:
    stub.set(gpus=2, **{"gone.0": 1})
    assert names(host.tick(2)) == set()
    assert host.absences.reasons() == {"hw.gpu.*/0": "gpu_lost"}
    stub.set(**{"gone.0": 0})
    assert latest(host.tick(3, seconds=31.0), "hw.power") == 345.0
    assert host.absences.reasons() == {}


def test_gpm_values_that_are_no_numbers_are_absent(stub: Any, host: Any) -> None:
    stub.set(gpus=1)
    host.tick()
    points = host.tick()
    assert "tailtrace.gpu.sm_active" not in names(points)
    assert host.absences.reasons(GPU0)["tailtrace.gpu.sm_active"] == "no_data"
    time.sleep(0.11)
    host.tick()
    assert "tailtrace.gpu.sm_active" not in host.absences.reasons(GPU0)


def test_without_byte_counters_gpm_gives_the_bandwidth(stub: Any, host: Any) -> None:
    stub.set(**{"field.197.err": 3, "field.198.err": 3})
    points = apart(host)
    transmit = {"tailtrace__link": "pcie", "network__io__direction": "transmit", "tailtrace__source": "gpm"}
    assert latest(points, "tailtrace.link.bandwidth", **transmit) == pytest.approx(100 * 1048576)


def test_mig_instances_are_entities_of_their_own(stub: Any, host: Any) -> None:
    stub.set(gpus=1, **{"mig.0": 2})
    points = apart(host)
    instances = {p.attributes["hw.id"] for p in points if p.attributes["hw.id"].startswith("MIG-")}
    assert instances == {"MIG-00000000-0000-0000-0000-000000000001", "MIG-00000000-0000-0000-0000-000000000002"}
    one = min(instances)
    assert latest(points, "hw.gpu.memory.usage", one) == 5 << 30
    assert latest(points, "hw.status", one, hw__parent=GPU0) == 1
    assert latest(points, "hw.gpu.utilization", one) is None
    assert host.absences.reasons(one)["hw.gpu.utilization"] == "whole_gpu_only"
    assert latest(points, "tailtrace.gpu.sm_active", one) == pytest.approx(0.7)
    assert latest(points, "hw.gpu.utilization") is None
    assert host.absences.reasons(GPU0)["hw.gpu.utilization"] == "not_supported"
    assert latest(points, "hw.power") == 345.0


def test_a_lost_gpu_is_said_and_the_others_go_on(stub: Any, host: Any) -> None:
    stub.set(gpus=2)
    host.tick()
    stub.set(**{"lost.0": 1, "gone.0": 1})
    points = host.tick()
    assert latest(points, "hw.status", hw__state="failed", tailtrace__reason="gpu_lost") == 1
    later = host.tick(2)
    assert names(later) == set()
    assert "hw.power" in names(later, GPU1)
    stub.set(**{"lost.0": 0, "gone.0": 0})
    assert latest(host.tick(8, seconds=5.0), "hw.power") == 345.0


def test_after_a_driver_reload_counters_start_anew(stub: Any, host: Any) -> None:
    apart(host)
    stub.set(**{"err.nvmlDeviceGetFieldValues": 1})
    host.tick()
    stub.set(**{"err.nvmlDeviceGetFieldValues": 0})
    again = host.tick(1, seconds=3.0) + host.tick()
    assert latest(again, "tailtrace.gpu.clock.sm") == 1_755_000_000
    starts = {p.start_unix_ns for p in host.tick() if p.name == "hw.energy" and p.attributes["hw.id"] == GPU0}
    assert all(start > 0 for start in starts)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "driver_not_loaded"), (18, "driver_library_mismatch"), (4, "no_permission"), (999, "unknown_error")],
)
def test_no_nvml_at_the_start_is_said_once_and_tried_again(
    stub: Any, host: Any, caplog: pytest.LogCaptureFixture, code: int, reason: str
) -> None:
    stub.set(init=code)
    assert host.tick(5, seconds=31.0) == []
    assert host.absences.reasons() == {"hw.gpu.*": reason}
    assert [r.levelname for r in caplog.records if "no GPU counters" in r.message] == ["WARNING"]
    stub.set(init=0)
    assert "hw.power" in names(host.tick(2, seconds=31.0))
    assert host.absences.reasons() == {}


def test_a_mismatch_after_it_had_worked_asks_for_a_new_process(stub: Any, host: Any) -> None:
    host.tick()
    stub.set(init=18, **{"err.nvmlDeviceGetFieldValues": 18})
    with pytest.raises(DriverReplaced):
        host.tick(4, seconds=2.0)


def test_no_gpu_at_all_is_a_reason(stub: Any, host: Any) -> None:
    stub.set(gpus=0)
    host.tick()
    assert host.absences.reasons() == {"hw.gpu.*": "no_gpu"}


def test_a_counter_of_32_bits_wraps(stub: Any, host: Any) -> None:
    stub.set(**{"field.197.type": 1, "field.197.value": (1 << 32) - 1000})
    host.tick()
    time.sleep(0.01)
    stub.set(**{"field.197.value": 2000})
    transmit = {"tailtrace__link": "pcie", "network__io__direction": "transmit"}
    assert latest(host.tick(), "tailtrace.link.io", **transmit) == 3000


def test_a_sum_that_stands_still_is_sent_rarely_and_loses_nothing(stub: Any, host: Any) -> None:
    stub.set(gpus=1, **{"field.74.value": 500})

    def sums(points: list[Any]) -> list[tuple[float, int]]:
        capped = [p for p in points if p.attributes.get("tailtrace.reason") == "sw_power_cap"]
        return [(p.value, p.time_unix_ns) for p in capped]

    assert sums(host.tick()) == []
    [(start, first)] = sums(host.tick())
    assert sums(host.tick(2)) == []
    stub.set(**{"field.74.value": 900})
    (still, last), (grown, now) = sums(host.tick())
    assert (start, still, grown) == (0, 0, 400)
    assert first < last < now
    rates = [p for p in host.tick(3) if p.name == "tailtrace.link.bandwidth"]
    assert len(rates) == 3 * 4


def test_a_reset_and_an_implausible_rate_are_dropped_and_counted(stub: Any, host: Any) -> None:
    stub.set(gpus=1, **{"field.197.value": 10**9})
    host.tick()
    time.sleep(0.01)
    stub.set(**{"field.197.value": 5})
    host.tick()
    assert host.drops.counts == {"reset": 1}
    time.sleep(0.01)
    stub.set(**{"field.197.value": 10**15})
    host.tick()
    assert host.drops.counts == {"reset": 1, "implausible": 1}


def test_slow_calls_are_made_rarer(stub: Any, host: Any) -> None:
    stub.set(gpus=1, **{"sleep_ms.nvmlDeviceGetClockInfo": 6})
    host.tick(30)
    assert host.meters["nvmlDeviceGetClockInfo"].stretch >= 2
    assert host.meters["nvmlDeviceGetUtilizationRates"].stretch == 1


def test_processes_outside_the_namespace_have_no_name(stub: Any, host: Any) -> None:
    points = host.tick()
    assert latest(points, "tailtrace.gpu.processes", tailtrace__namespace="outside") == 1
    assert latest(points, "tailtrace.gpu.processes", tailtrace__namespace="inside") == 0
    assert latest(points, "tailtrace.gpu.process.memory") is None


def test_a_gpu_that_several_processes_share_says_how_many(
    stub: Any, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pids, "in_first_namespace", lambda proc=None: True)
    stub.set(gpus=1, pid=os.getpid())
    points = host.tick()
    assert latest(points, "tailtrace.gpu.processes", tailtrace__namespace="inside") == 1
    assert latest(points, "tailtrace.gpu.processes", tailtrace__namespace="outside") == 1
    [memory] = [p for p in points if p.name == "tailtrace.gpu.process.memory"]
    assert (memory.value, memory.attributes["process.pid"]) == (2 << 30, os.getpid())
    assert host.gpus.processes() == {os.getpid()}


def test_an_xid_is_an_error_with_its_code(stub: Any, new_host: Callable[..., Any]) -> None:
    host = new_host(listen=True)
    host.tick()
    stub.set(xid=79)
    deadline = time.monotonic() + 10
    found: list[Any] = []
    while not found and time.monotonic() < deadline:
        found = [p for p in list(host.points) if p.name == "hw.errors" and p.attributes["error.type"] == "xid"]
        time.sleep(0.01)
    assert [(p.value, p.attributes["tailtrace.xid"], p.attributes["hw.id"]) for p in found] == [(1, 79, GPU0)]


def test_the_pcie_call_of_20_ms_is_not_in_the_way(stub: Any, new_host: Callable[..., Any]) -> None:
    stub.set(arch=7, **{"field.197.err": 3, "field.198.err": 3})
    host = new_host()
    host.tick(4)
    assert host.meters["nvmlDeviceGetPcieThroughput"].count == 0
    assert [gpu.pcie_by_call for gpu in host.gpus._gpus] == [True] * 8


def test_two_ticks_of_one_gpu_come_from_the_middle_of_the_reading(stub: Any, host: Any) -> None:
    stub.set(gpus=1, **{"sleep_ms.nvmlDeviceGetClockInfo": 20})
    before = time.time_ns()
    points = host.tick()
    after = time.time_ns()
    stamps = [p.time_unix_ns for p in points if p.name == "tailtrace.gpu.clock_events"]
    assert before + 15_000_000 < stamps[0] < after - 15_000_000

"""CUDA's numbers to UUIDs, in every form of the variables; NVML's order is never used."""

from __future__ import annotations

from typing import Any

import pytest

from tailtrace.instrumentation.sampler.visible import Listed, gpu_uuids, visible_uuids

U0, U1, U2 = "GPU-aaaa0000", "GPU-aabb1111", "GPU-cccc2222"
MIG = "MIG-dddd3333"
# As NVML may list them: not in the order of the bus.
GPUS = [Listed(U2, "0000:C1:00.0"), Listed(U0, "0000:07:00.0"), Listed(U1, "0000:4a:00.0", (MIG,))]
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, [U0, U1, U2]),
        ("1", [U1]),
        ("2,0", [U2, U0]),
        (" 0 , 2 ", [U0, U2]),
        (U2, [U2]),
        ("GPU-cc", [U2]),
        ("GPU-aa", []),
        ("gpu-aabb", [U1]),
        (f"{U1},0", [U1, U0]),
        (MIG, [MIG]),
        ("MIG-dd", [MIG]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,-1,2", [U0]),
        ("0,7,2", [U0]),
        ("0,0", []),
    ],
)
def test_visible_devices(visible: str | None, uuids: list[str]) -> None:
    environ = BY_BUS if visible is None else {**BY_BUS, "CUDA_VISIBLE_DEVICES": visible}
    assert visible_uuids(GPUS, environ)[0] == uuids


def test_numbers_without_a_stated_order_are_uncertain() -> None:
    assert visible_uuids(GPUS, {"CUDA_VISIBLE_DEVICES": "1"}) == ([U1], "device_order")
    assert visible_uuids(GPUS, {"CUDA_VISIBLE_DEVICES": U1}) == ([U1], "")
    assert visible_uuids(GPUS[:1], {"CUDA_VISIBLE_DEVICES": "0"}) == ([U2], "")
    assert visible_uuids(GPUS, {**BY_BUS, "CUDA_VISIBLE_DEVICES": "1"}) == ([U1], "")
    assert visible_uuids(GPUS, {**BY_BUS, "CUDA_VISIBLE_DEVICES": "1,1"}) == ([], "duplicate_device")


def test_nvml_that_lists_the_other_way_round_changes_nothing(stub: Any) -> None:
    stub.set(gpus=3, order=1)
    one = "GPU-00000001-0000-0000-0000-000000000000"
    assert gpu_uuids({**BY_BUS, "CUDA_VISIBLE_DEVICES": "1"}) == ([one], "")
    assert gpu_uuids({**BY_BUS, "CUDA_VISIBLE_DEVICES": "GPU-00000001"}) == ([one], "")


def test_where_nvml_cannot_be_used_there_is_a_reason(stub: Any) -> None:
    stub.set(init=9)
    assert gpu_uuids({}) == ([], "driver_not_loaded")

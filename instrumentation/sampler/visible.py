"""Which GPUs a CUDA process sees, as UUIDs: its device numbers mean nothing to anybody else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailtrace.instrumentation.sampler.nvml import Session, Unavailable


@dataclass(frozen=True, slots=True)
class Listed:
    """A GPU, or MIG instance, in NVML's order. `speed` orders CUDA's default, where it is known."""

    uuid: str
    bus_id: str
    instances: tuple[str, ...] = ()


def visible_uuids(gpus: Sequence[Listed], environ: Mapping[str, str]) -> tuple[list[str], str]:
    """UUIDs in the order in which this environment's CUDA numbers them, and why they are uncertain ("" when not).

    CUDA_VISIBLE_DEVICES holds numbers, UUIDs or unique beginnings of them, or MIG UUIDs; the first entry that names no
    device hides itself and all after it; an empty value hides everything. Numbers count in order of the PCI bus with
    CUDA_DEVICE_ORDER=PCI_BUS_ID, which is also the order of unlike devices' default (FASTEST_FIRST) only where all
    GPUs are alike; a duplicate makes CUDA see nothing.
    """
    ordered = sorted(gpus, key=lambda gpu: gpu.bus_id.lower())
    by_bus = environ.get("CUDA_DEVICE_ORDER", "").strip().upper() == "PCI_BUS_ID"
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        uncertain = "device_order" if not by_bus and len(ordered) > 1 else ""
        return [gpu.uuid for gpu in ordered], uncertain
    known = [uuid for gpu in ordered for uuid in (gpu.uuid, *gpu.instances)]
    chosen: list[str] = []
    uncertain = ""
    for entry in text.split(","):
        name = entry.strip()
        if name.isdigit():
            if int(name) >= len(ordered):
                break
            if not by_bus and len(ordered) > 1:
                uncertain = "device_order"
            chosen.append(ordered[int(name)].uuid)
            continue
        matching = [uuid for uuid in known if name and uuid.lower().startswith(name.lower())]
        if len(matching) != 1:
            break
        chosen.append(matching[0])
    if len(set(chosen)) != len(chosen):
        return [], "duplicate_device"
    return chosen, uncertain


def gpu_uuids(environ: Mapping[str, str] | None = None) -> tuple[list[str], str]:
    """What `visible_uuids` gives for this machine's GPUs; none, with the reason, where NVML cannot be used.

    For `describe(gpu_uuids=",".join(gpu_uuids()[0]))`. Opens NVML (milliseconds a GPU): not in a request.
    """
    try:
        session = Session()
    except Unavailable as error:
        return [], error.reason
    try:
        devices = session.devices()
    except Unavailable as error:
        return [], error.reason
    finally:
        session.close()
    instances: dict[str, list[str]] = {}
    for device in devices:
        if device.is_instance:
            instances.setdefault(device.parent, []).append(device.uuid)
    listed = [
        Listed(device.uuid, device.bus_id, tuple(instances.get(device.uuid, ())))
        for device in devices
        if not device.is_instance
    ]
    return visible_uuids(listed, os.environ if environ is None else environ)

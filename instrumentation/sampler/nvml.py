"""NVML through pynvml: opened late, closed and opened again, every error turned into a reason.

pynvml (nvidia-ml-py) is optional and imported only here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

log = logging.getLogger("tailtrace")

LOST_CODES: Final = frozenset({1, 9, 15, 16, 18, 28})
"""Uninitialised, driver not loaded, GPU lost, reset required, library mismatch, GPU not found: handles are void."""
MISMATCH: Final = 18
NOT_SUPPORTED: Final = 3
NOT_FOUND: Final = 6
FUNCTION_NOT_FOUND: Final = 13
VERSION_MISMATCH: Final = 25
REASONS: Final = {
    1: "uninitialized", 2: "unknown_to_driver", 3: "not_supported", 4: "no_permission", 6: "not_found",
    9: "driver_not_loaded", 10: "timeout", 12: "no_library", 13: "old_driver", 15: "gpu_lost", 16: "reset_required",
    17: "blocked_by_system", 18: "driver_library_mismatch", 21: "no_data", 25: "version_mismatch", 28: "gpu_lost",
    999: "unknown_error",
}  # fmt: skip
_VIRTUALIZATION: Final = {1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_NEEDED: Final = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetFieldValues", "nvmlGpmSampleGet", "NVMLError")


def reason_of(code: int) -> str:
    """The word sent as `tailtrace.reason` for an NVML return code."""
    return REASONS.get(code, f"nvml_{code}")


class Unavailable(Exception):
    """NVML cannot be used now; `reason` is a word of the wire, the message is for people."""

    def __init__(self, reason: str, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code


class GpuLost(Exception):
    """A call said that its handle is worth nothing any more."""

    def __init__(self, code: int) -> None:
        super().__init__(reason_of(code))
        self.code = code


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one MIG instance (then `parent` is its GPU's UUID, and `instance` the GPU instance's id).

    `virtualization` is empty on bare metal, else passthrough, vgpu (a guest's share), host_vgpu or host_vsga.
    """

    handle: Any
    uuid: str
    name: str
    bus_id: str
    mig: bool = False
    parent: str = ""
    parent_handle: Any = None
    instance: int = 0
    virtualization: str = ""

    @property
    def is_instance(self) -> bool:
        return bool(self.parent)


def load_pynvml() -> Any:
    """The module. Raises Unavailable where it is absent, or is another package of that name."""
    try:
        import pynvml
    except ImportError:
        raise Unavailable("no_pynvml", "pynvml is not installed: pip install 'tailtrace[gpu]'") from None
    missing = [name for name in _NEEDED if not hasattr(pynvml, name)]
    if missing:
        where = getattr(pynvml, "__file__", "?")
        raise Unavailable(
            "foreign_pynvml",
            f"pynvml at {where} is not nvidia-ml-py (it has no {missing[0]}): pip uninstall pynvml; "
            "pip install 'nvidia-ml-py>=12.560'",
        )
    return pynvml


class Session:
    """NVML between init and shutdown."""

    def __init__(self) -> None:
        self.api = load_pynvml()
        try:
            self.api.nvmlInit()
        except self.api.NVMLError as error:
            raise Unavailable(reason_of(error.value), f"NVML: {error}", error.value) from error
        self.driver = self._driver()
        self._count = 0
        self.failed: dict[int, str] = {}
        """GPUs that are there and did not answer, by NVML's index, with the reason."""

    def close(self) -> None:
        try:
            self.api.nvmlShutdown()
        except self.api.NVMLError:
            pass

    def devices(self) -> list[Device]:
        """GPUs that answer, each followed by its MIG instances. Raises Unavailable where there is none."""
        try:
            count = self.api.nvmlDeviceGetCount()
        except self.api.NVMLError as error:
            raise Unavailable(reason_of(error.value), f"NVML: {error}", error.value) from error
        found: list[Device] = []
        failure: Unavailable | None = None
        self._count, self.failed = count, {}
        for index in range(count):
            try:
                found += self._device(index)
            except self.api.NVMLError as error:
                failure = Unavailable(reason_of(error.value), f"GPU {index}: {error}", error.value)
                self.failed[index] = failure.reason
                log.warning("tailtrace: %s", failure)
        if not found:
            raise failure or Unavailable("no_gpu", "NVML works, but there is no GPU")
        return found

    def changed(self, devices: Sequence[Device]) -> bool:
        """Whether GPUs or MIG instances came or went since `devices` were listed. Handles of instances die with them.

        A call that fails says nothing: a GPU that is lost is noticed by what is read of it.
        """
        api = self.api
        try:
            if api.nvmlDeviceGetCount() != self._count:
                return True
            for gpu in devices:
                if gpu.is_instance:
                    continue
                known = {device.uuid for device in devices if device.parent == gpu.uuid}
                mig = self._mig(gpu.handle)
                if mig != gpu.mig or known != {one.uuid for one in (self._instances(gpu) if mig else ())}:
                    return True
        except api.NVMLError:
            pass
        return any(map(self._answers, self.failed))

    def _answers(self, index: int) -> bool:
        try:
            self.api.nvmlDeviceGetUUID(self.api.nvmlDeviceGetHandleByIndex(index))
        except self.api.NVMLError:
            return False
        return True

    def _mig(self, handle: Any) -> bool:
        try:
            return bool(self.api.nvmlDeviceGetMigMode(handle)[0] == 1)
        except self.api.NVMLError:
            return False

    def _virtualization(self, handle: Any) -> str:
        try:
            return _VIRTUALIZATION.get(int(self.api.nvmlDeviceGetVirtualizationMode(handle)), "")
        except (self.api.NVMLError, AttributeError):
            return ""

    def _device(self, index: int) -> list[Device]:
        api = self.api
        handle = api.nvmlDeviceGetHandleByIndex(index)
        uuid, name = api.nvmlDeviceGetUUID(handle), api.nvmlDeviceGetName(handle)
        try:
            bus_id = str(api.nvmlDeviceGetPciInfo(handle).busId)
        except api.NVMLError:
            bus_id = ""
        mig = self._mig(handle)
        gpu = Device(handle, uuid, name, bus_id, mig, virtualization=self._virtualization(handle))
        return [gpu, *(self._instances(gpu) if mig else ())]

    def _instances(self, gpu: Device) -> Iterator[Device]:
        api = self.api
        try:
            most = api.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
        except api.NVMLError:
            return
        for index in range(most):
            try:
                handle = api.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, index)
                uuid, instance = api.nvmlDeviceGetUUID(handle), api.nvmlDeviceGetGpuInstanceId(handle)
            except api.NVMLError:
                continue  # indices are sparse
            yield Device(handle, uuid, gpu.name, gpu.bus_id, True, gpu.uuid, gpu.handle, instance)

    def _driver(self) -> str:
        try:
            return str(self.api.nvmlSystemGetDriverVersion())
        except self.api.NVMLError:
            return ""

    @property
    def driver_major(self) -> int:
        """580 for "580.65.06"; 0 where it is not known."""
        head = self.driver.partition(".")[0]
        return int(head) if head.isdigit() else 0

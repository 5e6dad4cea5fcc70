"""What a vLLM process is: model, precision, parallelism and devices, for its resource."""

from __future__ import annotations

import sys
from typing import Any


def identity(config: Any) -> dict[str, Any]:
    """Resource attributes from a `VllmConfig`; whatever an engine version does not have is left out."""
    model, parallel = getattr(config, "model_config", None), getattr(config, "parallel_config", None)
    served = getattr(model, "served_model_name", None) or getattr(model, "model", None)
    if isinstance(served, (list, tuple)):
        served = served[0] if served else None
    found = {
        "engine": "vllm",
        "engine_version": getattr(sys.modules.get("vllm"), "__version__", None),
        "model": served,
        "precision": str(getattr(model, "dtype", "")).removeprefix("torch.") or None,
        "quantization": getattr(model, "quantization", None),
        "tp": getattr(parallel, "tensor_parallel_size", None),
        "pp": getattr(parallel, "pipeline_parallel_size", None),
        "max_batch": getattr(getattr(config, "scheduler_config", None), "max_num_seqs", None),
        **_devices(getattr(parallel, "world_size", 1)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _devices(count: int) -> dict[str, Any]:
    """UUIDs and model of the GPUs, asked of NVML through vLLM's platform, so that no CUDA context is made."""
    try:
        from vllm.platforms import current_platform

        if not current_platform.is_cuda_alike():
            return {}
        uuids = [str(current_platform.get_device_uuid(index)) for index in range(count)]
        return {"gpu_uuids": ",".join(uuids), "gpu_model": str(current_platform.get_device_name(0))}
    except Exception:
        # Not every platform or version can say.
        return {}

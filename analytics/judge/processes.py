"""What the resources say of the processes that served a request: looked up once per process, not per request."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailtrace.analytics.judge.batch import Resources
from tailtrace.analytics.judge.columns import coded

# Column of `requests` and the resource attribute that it holds.
TEXTS: Final = {
    "Model": "tailtrace.model",
    "Engine": "tailtrace.engine",
    "EngineVersion": "tailtrace.engine_version",
    "EngineId": "tailtrace.engine_id",
    "Precision": "tailtrace.precision",
    "Quantization": "tailtrace.quantization",
    "GpuModel": "tailtrace.gpu_model",
    "GpuUuids": "tailtrace.gpu_uuids",
    "Replica": "service.instance.id",
    "HostId": "host.id",
}
NUMBERS: Final = {
    "Tp": ("tailtrace.tp", 65535),
    "Pp": ("tailtrace.pp", 65535),
    "MaxBatch": ("tailtrace.max_batch", (1 << 32) - 1),
}


class Processes:
    """The processes of entries and of executors (hashes by row); an executor's word counts before its entry's."""

    def __init__(self, entry: Any, executor: Any, resources: Resources) -> None:
        hashes, codes = np.unique(np.concatenate((entry, executor)), return_inverse=True)
        self._known = [resources.get(int(h), {}) for h in hashes]
        self._entry, self._executor = codes[: len(entry)], codes[len(entry) :]

    def of_entry(self, key: str) -> pa.Array:
        """The attribute of the entry's process, dictionary-encoded, empty where absent."""
        return coded(self._entry, pa.array([r.get(key, "") for r in self._known], pa.string()))

    def is_true(self, key: str) -> Any:
        """Whether the attribute of the entry's or the executor's process is "true"."""
        table = np.array([r.get(key) == "true" for r in self._known], np.bool_)
        return table[self._entry] | table[self._executor]

    def text(self, key: str) -> pa.Array:
        """The attribute of the executor, else of the entry, dictionary-encoded."""
        texts = [r.get(key, "") for r in self._known]
        chosen = np.where(np.array([bool(t) for t in texts], np.bool_)[self._executor], self._executor, self._entry)
        return coded(chosen, pa.array(texts, pa.string()))

    def number(self, key: str, limit: int) -> Any:
        """As `text`, a whole number up to `limit`; 0 where absent or anything else."""
        values = np.array([_whole(r.get(key, ""), limit) for r in self._known], np.int64)
        return np.where(values[self._executor] > 0, values[self._executor], values[self._entry])


def _whole(text: str, limit: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= limit else 0

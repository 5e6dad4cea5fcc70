"""Measured step times of A100 and H100 (package data, MIT): prefill by prompt tokens, decode by batch size."""

from __future__ import annotations

import csv
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tailtrace.errors import ConfigError
from tailtrace.lab.clock import MICROSECOND

DATA = Path(__file__).parent.parent / "data"

# Names, memory and power limits of the devices as their drivers report them.
GPU_NAMES = {"a100-80gb": "NVIDIA A100-SXM4-80GB", "h100-80gb": "NVIDIA H100 80GB HBM3"}
GPU_POWER_W = {"a100-80gb": 400.0, "h100-80gb": 700.0}
GPU_CLOCK_HZ = {"a100-80gb": 1.41e9, "h100-80gb": 1.98e9}
GPU_MEMORY_BYTES = 80 * 1024**3


@dataclass(frozen=True, slots=True)
class Curve:
    """Straight lines between measured points; beyond the last one the last slope goes on."""

    sizes: tuple[int, ...]
    times_ns: tuple[int, ...]

    def at(self, size: float) -> float:
        """Nanoseconds for `size` tokens or sequences; below the first point its time (the weights are read anyway)."""
        sizes, times = self.sizes, self.times_ns
        if size <= sizes[0]:
            return float(times[0])
        right = min(bisect_right(sizes, size), len(sizes) - 1)
        left = right - 1
        slope = (times[right] - times[left]) / (sizes[right] - sizes[left])
        return times[left] + slope * (size - sizes[left])


@cache
def curves(model: str, gpu: str, tp: int) -> tuple[Curve, Curve]:
    """(prefill, decode) of a model on `tp` GPUs. Raises ConfigError for what was not measured."""
    table: dict[tuple[str, str, int], dict[str, list[tuple[int, int]]]] = {}
    with (DATA / "step_times.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            phases = table.setdefault((row["model"], row["gpu"], int(row["tp"])), {"prefill": [], "decode": []})
            phases[row["phase"]].append((int(row["size"]), int(row["time_us"]) * MICROSECOND))
    try:
        phases = table[(model, gpu, tp)]
    except KeyError:
        known = "; ".join(f"{m} on {t} x {g}" for m, g, t in table)
        raise ConfigError(f"no measured times for {model} on {tp} x {gpu}; there are: {known}") from None
    # A measured point below its neighbour is noise: more work never takes less time.
    made = []
    for phase in ("prefill", "decode"):
        points = sorted(phases[phase])
        times: list[int] = []
        for _, time_ns in points:
            times.append(max(time_ns, times[-1] if times else 0))
        made.append(Curve(tuple(size for size, _ in points), tuple(times)))
    return made[0], made[1]

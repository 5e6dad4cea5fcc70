"""Every threshold of the rules, with where it comes from. A rule names its threshold; it holds no number of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit; `source` is quoted in the evidence that uses it."""

    value: float
    source: str


_OWN: Final = "judgement, calibrated on the lab (docs/verdicts.md)"

# Whether there is anything to explain.
SLOWER: Final = Threshold(0.12, f"excess / reference mean; {_OWN}")
SIGNIFICANT: Final = Threshold(3.0, f"excess / its standard error over blocks of time; {_OWN}")
EXCEEDING: Final = Threshold(
    4.0, f"rise of the share above the reference's P90 / its standard error over blocks of time; {_OWN}"
)
STAGE_EXCESS: Final = Threshold(0.02, f"excess of one stage / reference mean; {_OWN}")
FEW_REQUESTS: Final = Threshold(20, f"requests in a window; {_OWN}")

# GPUs.
THROTTLED: Final = Threshold(0.05, "throttled ns / ns; NVML fields 74, 269-271: a counter cannot miss a short event")
CLOCK: Final = Threshold(0.9, f"SM clock / SM clock of the reference; {_OWN}")
RANK_SCORE: Final = Threshold(0.7, "rank / best of its peers; NVIDIA resiliency extension")
RANK_WORK: Final = Threshold(0.85, f"tensor or memory activity / reference while busy alike; {_OWN}")
DRAM_HEAVY: Final = Threshold(
    0.5, "memory bandwidth / peak while busy; KempnerPulse; DCGM: 0.8 is the practical ceiling"
)
TENSOR_HEAVY: Final = Threshold(
    0.4, f"tensor activity while busy with prompts; KempnerPulse 0.5 for prefill alone; {_OWN}"
)
SM_LOW: Final = Threshold(0.25, "SM activity at graphics activity >= 0.4; KempnerPulse: small kernels")
GPU_IDLE_IN_STEP: Final = Threshold(0.15, "1 - GPU time / step time; TensorRT-LLM perf-host-analysis, generation")
STEP_SLOWER: Final = Threshold(1.10, f"step time / reference at the same batch; {_OWN}")
XID: Final = Threshold(0, "XID errors; NVIDIA XID catalogue")
SHARED: Final = Threshold(0.5, f"processes on a GPU beyond the service's own, mean over the window; {_OWN}")
IDLE: Final = Threshold(0.05, "GPU busy; KempnerPulse: idle below 5 %")

# Links.
PCIE: Final = Threshold(0.6, f"PCIe bytes / limit; {_OWN}; offload can be 99 % of latency (2601.19910)")
NVLINK: Final = Threshold(0.5, f"NVLink bytes / limit; {_OWN}")
NVLINK_ACTIVE: Final = Threshold(0.95, f"active NVLinks / reference; {_OWN}")
RETRANSMITS: Final = Threshold(0.01, f"segments sent again / segments sent; {_OWN}")
RTT: Final = Threshold(1.4, f"client round trip / reference; {_OWN}")

# Host.
LOOP_LOST: Final = Threshold(0.05, f"event loop late / time, by cause; experiment of five host faults; {_OWN}")
QUOTA: Final = Threshold(0.05, f"time out of CPU quota / time; {_OWN}")
RUN_QUEUE: Final = Threshold(0.15, f"threads runnable without a CPU / time; experiment of five host faults; {_OWN}")
HOT_THREAD: Final = Threshold(0.85, f"one thread's CPU / time; {_OWN}")

# Queues.
KV_FULL: Final = Threshold(0.9, "KV blocks used while requests wait for memory; vLLM kv_cache_usage_perc")
KV_TIGHT: Final = Threshold(0.6, f"KV blocks used while requests wait for memory; {_OWN}")
KV_BLOCKED: Final = Threshold(0.5, f"waiting steps that wait for memory / waiting steps; {_OWN}")
DRIVER: Final = Threshold(0.10, f"log of demand / reference demand; {_OWN}")
CLEAR_DRIVER: Final = Threshold(0.4, f"log of demand / reference demand, where nothing else can be ruled out; {_OWN}")
HELD: Final = Threshold(1.3, f"decode time a request / reference, while others' prompts fill memory; {_OWN}")
UNEVEN: Final = Threshold(1.6, f"busiest replica's work / mean of replicas; {_OWN}")
WIDER: Final = Threshold(1.4, f"batch waiting / reference; {_OWN}")

# Clues: log lines and engine metrics.
LOG_LINES: Final = Threshold(5, f"error or warning lines in a window; {_OWN}")
LOG_RATE: Final = Threshold(3.0, f"lines / those that the reference lets expect; {_OWN}")
ENGINE_READING: Final = Threshold(2.0, f"reading / reference; {_OWN}")

# Traffic.
MIX: Final = Threshold(1.2, f"tokens / reference; {_OWN}")
TAIL: Final = Threshold(1.25, f"mean prompt grew this much more than the median one; {_OWN}")

# Confidence.
HIGH_STRENGTH: Final = Threshold(0.75, f"strength of the evidence behind the headline; {_OWN}")
HIGH_SHARE: Final = Threshold(0.5, f"share of the headline; {_OWN}")
MEDIUM_STRENGTH: Final = Threshold(0.45, f"strength of the evidence behind the headline; {_OWN}")

"""What a cause does to the lab: each is a few knobs of its parts, turned while the fault lasts.

A new cause is a new line here, and a new knob where a part reads it. The number beside a knob is its value at
strength 1; strength 0 leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Knob = Literal[
    "arrivals", "input_tokens", "output_tokens", "giant_share", "long_share", "mix_share", "cache_hits",
    "auth_ms", "limiter_ms", "external_ms", "slow_readers", "link_ms", "route_skew",
    "tokenize_time", "tokenizer_threads", "submit_ms", "batch_delay_ms",
    "kv_blocks", "kv_reserve", "chunk_tokens", "step_time", "decode_time", "prefill_time", "launch_ms", "restart_s",
    "dispatch_ms", "resend_ms", "kv_load_ms", "kv_transfer_ms", "late_s",
    # What only counters show: the fault's own mark beside the time it takes.
    "throttled", "straggler", "nvlink_down", "pcie_share", "xid", "retransmit_share",
    "loop_blocked", "loop_cpu", "cpu_starved", "cpu_quota", "gil",
]  # fmt: skip

# Knobs that scale (1 = untouched); every other one adds (0 = untouched).
SCALING: Final[frozenset[str]] = frozenset({
    "arrivals", "input_tokens", "output_tokens", "cache_hits", "tokenize_time", "tokenizer_threads",
    "kv_blocks", "chunk_tokens", "step_time", "decode_time", "prefill_time",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Effect:
    """`stage` is where the added time must show ("" = it adds none); `gateway` whether that stage is the gateway's."""

    stage: str
    knobs: Mapping[Knob, float]
    gateway: bool = False
    kind: str = "llm"


EFFECTS: Final[dict[str, Effect]] = {
    "client_link": Effect("stream_out", {"link_ms": 180.0}, gateway=True),
    "slow_reader": Effect("stream_out", {"slow_readers": 0.5}, gateway=True),
    "auth_dependency": Effect("auth", {"auth_ms": 250.0}, gateway=True),
    "limiter": Effect("rate_limit", {"limiter_ms": 300.0}, gateway=True),
    "external_dependency": Effect("external", {"external_ms": 600.0}, gateway=True),
    "upstream": Effect("dispatch", {"dispatch_ms": 350.0}, gateway=True),
    "retransmits": Effect("stream_out", {"resend_ms": 180.0, "retransmit_share": 0.06}, gateway=True),
    "loop_blocked": Effect("engine_submit", {"submit_ms": 120.0, "loop_blocked": 0.35}),
    "loop_cpu": Effect("engine_submit", {"submit_ms": 130.0, "loop_cpu": 0.45}),
    "cpu_starved": Effect("engine_submit", {"submit_ms": 110.0, "cpu_starved": 0.4}),
    "cpu_quota": Effect("engine_submit", {"submit_ms": 150.0, "cpu_quota": 0.4}),
    "gil": Effect("engine_submit", {"submit_ms": 100.0, "gil": 0.35}),
    "tokenizer_thread": Effect("tokenize", {"tokenize_time": 100.0, "tokenizer_threads": 0.01}),
    "capacity": Effect("queue", {"arrivals": 5.0}),
    "kv_full": Effect("queue", {"kv_blocks": 0.07, "kv_reserve": 1.0}),
    "preemption": Effect("preempted", {"kv_blocks": 0.07}),
    "scale_up_late": Effect("queue", {"arrivals": 3.5, "late_s": 120.0}),
    "pcie": Effect("kv_load", {"kv_load_ms": 700.0, "pcie_share": 0.85}),
    "kv_handover": Effect("kv_transfer", {"kv_transfer_ms": 600.0}),
    "batch_forming": Effect("batch_wait", {"batch_delay_ms": 120.0}, kind="oneshot"),
    "head_of_line": Effect("queue", {"giant_share": 0.06, "kv_blocks": 0.5}),
    "uneven_replicas": Effect("queue", {"route_skew": 1.0}),
    "cold_start": Effect("engine_init", {"restart_s": 180.0}),
    "prefill_compute": Effect("prefill", {"prefill_time": 2.5}),
    "decode_memory": Effect("decode", {"decode_time": 1.8}),
    "prefill_interference": Effect("decode", {"long_share": 0.35, "chunk_tokens": 4.0}),
    "launch_bound": Effect("decode", {"launch_ms": 25.0}),
    "throttled": Effect("decode", {"step_time": 1.7, "throttled": 1.0}),
    "straggler_rank": Effect("decode", {"step_time": 1.5, "straggler": 1.0}),
    "nvlink": Effect("decode", {"step_time": 1.6, "nvlink_down": 0.6}),
    "gpu_fault": Effect("engine_init", {"restart_s": 150.0, "xid": 1.0}),
    "no_work": Effect("", {"arrivals": 0.02}),
    "longer_output": Effect("decode", {"output_tokens": 2.5}),
    "longer_input": Effect("prefill", {"input_tokens": 3.0}),
    "cache_miss": Effect("prefill", {"cache_hits": 0.0}),
    "traffic_changed": Effect("prefill", {"mix_share": 0.6}),
}

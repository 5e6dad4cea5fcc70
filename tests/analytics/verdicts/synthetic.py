"""Windows of a made-up service: ordinary requests, steps and counters, with whatever a test changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tailtrace.analytics.verdicts.observed import STAGE_INDEX, STAGES, Counters, Observed, Requests, Startup, Steps

SECOND = 1_000_000_000
MS = 1_000_000
MINUTE = 60 * SECOND
T0 = 1_790_000_000 * SECOND
GPUS = {"replica-0": ("GPU-a0", "GPU-a1"), "replica-1": ("GPU-b0", "GPU-b1")}
HOST = "host"
ORDINARY = {"auth": 3, "tokenize": 4, "engine_submit": 1, "queue": 5, "prefill": 120, "decode": 4000, "stream_out": 2}


def requests(
    since_ns: int, until_ns: int, count: int, *, seed: int = 0, extra_ms: Mapping[str, float] | None = None,
    tokens: tuple[float, float] = (1000, 200), replica: int | None = None, rtt_ms: float = 20,
) -> Requests:  # fmt: skip
    """`count` requests spread evenly, each stage around its usual length plus `extra_ms`; token counts are means."""
    rng = np.random.default_rng(seed)
    whole = np.zeros((count, len(STAGES)))
    asked = tokens[0] * rng.uniform(0.5, 1.5, count)
    made = tokens[1] * rng.uniform(0.5, 1.5, count)
    for stage, ms in ORDINARY.items():
        scale = made / 200 if stage == "decode" else asked / 1000 if stage == "prefill" else 1.0
        whole[:, STAGE_INDEX[stage]] = ms * MS * scale * rng.uniform(0.8, 1.2, count)
    for stage, ms in (extra_ms or {}).items():
        whole[:, STAGE_INDEX[stage]] += ms * MS * rng.uniform(0.8, 1.2, count)
    first = whole.copy()
    first[:, [STAGE_INDEX["decode"], STAGE_INDEX["stream_out"]]] = 0
    return Requests(
        start_ns=np.linspace(since_ns, until_ns - 1, count).astype(np.int64),
        duration_ns=whole.sum(axis=1),
        ttft_ns=first.sum(axis=1),
        whole=whole,
        first=first,
        input_tokens=asked,
        output_tokens=made,
        cached_tokens=np.full(count, np.nan),
        client_rtt_ns=np.full(count, rtt_ms * MS),
        ok=np.ones(count, np.bool_),
        streamed=np.ones(count, np.bool_),
        replica=np.arange(count) % 2 if replica is None else np.full(count, replica),
        replicas=tuple(GPUS),
    )


def steps(
    since_ns: int, until_ns: int, count: int = 400, *, slower: float = 1.0, waiting: float = 0, capacity: float = 0,
    kv_usage: float = 0.3, gpu_share: float = 0.96,
) -> Steps:  # fmt: skip
    """Decode steps of four sequences at 20 ms, every tenth with a prompt of 1,000 tokens at 100 ms."""
    prompt = np.arange(count) % 10 == 0
    duration = np.where(prompt, 100.0 * MS, 20.0 * MS) * slower
    return Steps(
        start_ns=np.linspace(since_ns, until_ns - SECOND, count).astype(np.int64),
        duration_ns=duration,
        weight=np.ones(count),
        replica=np.arange(count) % 2,
        replicas=tuple(GPUS),
        running=np.full(count, 4.0),
        waiting=np.full(count, waiting),
        waiting_capacity=np.full(count, capacity),
        prefill_tokens=np.where(prompt, 1000.0, 0.0),
        decode_tokens=np.full(count, 4.0),
        preempted=np.zeros(count),
        kv_usage=np.full(count, kv_usage),
        gpu_ns=duration * gpu_share,
    )


def counters(**changed: float) -> Counters:
    """Quiet counters of every GPU and the host; `changed` by `metric__thing__attribute`, dots and dashes as `_`."""
    readings: dict[tuple[str, str, str], float] = {}
    for gpu in (one for group in GPUS.values() for one in group):
        readings |= {
            ("hw.gpu.utilization", gpu, ""): 0.9,
            ("tailtrace.gpu.sm_active", gpu, ""): 0.55,
            ("tailtrace.gpu.tensor_active", gpu, ""): 0.1,
            ("tailtrace.gpu.dram_active", gpu, ""): 0.6,
            ("tailtrace.gpu.clock.sm", gpu, ""): 1.98e9,
            ("tailtrace.gpu.throttle", gpu, "hw_thermal"): 0.0,
            ("tailtrace.link.limit", gpu, "pcie"): 63e9,
            ("tailtrace.link.bandwidth", gpu, "pcie.receive"): 0.6e9,
            ("tailtrace.link.active", gpu, "nvlink"): 18.0,
        }
    for cause in ("loop_blocked", "loop_cpu", "cpu_starved", "gil"):
        readings["tailtrace.host.loop.lost", HOST, cause] = 0.002
    readings |= {
        ("tailtrace.host.loop.lag", HOST, "p99"): 0.002,
        ("tailtrace.host.cgroup.throttled", HOST, ""): 0.0,
        ("tailtrace.host.tcp.segments", HOST, ""): 900.0,
        ("tailtrace.host.tcp.retransmits", HOST, ""): 0.5,
    }
    for key, value in changed.items():
        metric, thing, attribute = (*key.split("__"), "")[:3]
        known = [one for one in readings if tuple(_plain(part) for part in one) == (metric, thing, attribute)]
        assert known, f"no counter {key}"
        readings[known[0]] = value
    return Counters(readings, 1.0)


def _plain(text: str) -> str:
    return text.replace(".", "_").replace("-", "_")


def window(
    *, during: bool, rows: Requests | None = None, engine: Steps | None = None, read: Counters | None = None,
    startups: tuple[Startup, ...] = (),
) -> Observed:  # fmt: skip
    """Twenty minutes: the reference, or (`during`) the twenty after it."""
    since = T0 + (20 * MINUTE if during else 0)
    until = since + 20 * MINUTE
    return Observed(
        since, until,
        rows if rows is not None else requests(since, until, 600, seed=int(during)),
        engine if engine is not None else steps(since, until),
        read if read is not None else counters(),
        startups, GPUS, (HOST,),
    )  # fmt: skip


SINCE, UNTIL = T0 + 20 * MINUTE, T0 + 40 * MINUTE


def slow(**changes: object) -> Requests:
    """Requests of the second window, changed."""
    return requests(SINCE, UNTIL, 600, seed=1, **changes)  # type: ignore[arg-type]

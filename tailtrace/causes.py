"""The cause vocabulary: why a request waited where it did. Codes are stable; words are for people, in two languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.stages import Resource


@dataclass(frozen=True, slots=True)
class Cause:
    """`stage` is where its time usually shows ("" = anywhere); `resource` is what ran short."""

    code: str
    stage: str
    resource: Resource
    en: str
    zh: str


CAUSES: Final[tuple[Cause, ...]] = (
    Cause("no_work", "", "scheduler", "no work arrived", "没有到达的请求"),
    Cause("upstream", "", "cpu", "held back upstream, before the engine", "在引擎之前的上游被阻塞"),
    Cause("client_link", "stream_out", "client", "the client's link is slow or far", "客户端链路慢或距离远"),
    Cause("slow_reader", "stream_out", "client", "the client reads slowly", "客户端读取缓慢"),
    Cause("retransmits", "stream_out", "network", "packets are being retransmitted", "网络重传"),
    Cause("loop_blocked", "", "cpu", "the event loop was blocked by one call", "事件循环被单个调用阻塞"),
    Cause("loop_cpu", "", "cpu", "the event-loop thread is saturated", "事件循环线程 CPU 饱和"),
    Cause("cpu_starved", "", "cpu", "runnable threads wait for a CPU", "线程在等待 CPU"),
    Cause("cpu_quota", "", "cpu", "the container's CPU quota throttles it", "容器 CPU 配额限流"),
    Cause("gil", "", "cpu", "threads wait for Python's interpreter lock", "线程等待 Python 全局锁"),
    Cause("auth_dependency", "auth", "network", "the authentication look-up is slow", "鉴权依赖缓慢"),
    Cause("limiter", "rate_limit", "scheduler", "the rate limiter holds requests", "限流器阻塞请求"),
    Cause("tokenizer_thread", "tokenize", "cpu", "one tokenizer thread is hot", "分词器单线程过热"),
    Cause("capacity", "queue", "scheduler", "more work arrives than the engine can do", "到达负载超过引擎能力"),
    Cause("kv_full", "queue", "memory", "the KV cache is full", "KV 缓存已满"),
    Cause("preemption", "preempted", "memory", "requests are preempted and recomputed", "请求被抢占并重算"),
    Cause("batch_forming", "batch_wait", "scheduler", "waiting for a batch to form", "等待凑批"),
    Cause("head_of_line", "queue", "scheduler", "a large request ahead blocks the queue", "队首大请求阻塞"),
    Cause("uneven_replicas", "queue", "scheduler", "replicas are unevenly loaded", "副本负载不均"),
    Cause("cold_start", "engine_init", "storage", "a replica is starting", "副本冷启动"),
    Cause("scale_up_late", "queue", "scheduler", "replicas were added too late", "扩容过晚"),
    Cause("prefill_compute", "prefill", "gpu", "prefill is bound by GPU compute", "预填充受 GPU 算力限制"),
    Cause("decode_memory", "decode", "memory", "decode is bound by GPU memory bandwidth", "解码受显存带宽限制"),
    Cause("prefill_interference", "decode", "gpu", "other requests' prefill slows decode", "其他请求的预填充拖慢解码"),
    Cause("launch_bound", "decode", "cpu", "the CPU launches kernels too slowly", "CPU 内核启动受限"),
    Cause("throttled", "", "gpu", "GPU clocks are throttled", "GPU 降频"),
    Cause("pcie", "", "link", "PCIe is saturated", "PCIe 饱和"),
    Cause("nvlink", "", "link", "NVLink is saturated or degraded", "NVLink 饱和或降级"),
    Cause("straggler_rank", "", "gpu", "one rank is slower than its peers", "某个 rank 落后"),
    Cause("kv_handover", "kv_transfer", "link", "KV hand-over between workers is slow", "KV 传递缓慢"),
    Cause("longer_output", "decode", "gpu", "answers are longer", "输出更长"),
    Cause("longer_input", "prefill", "gpu", "prompts are longer", "输入更长"),
    Cause("cache_miss", "prefill", "memory", "fewer prompt tokens come from the prefix cache", "前缀缓存命中减少"),
    Cause("external_dependency", "external", "network", "an external dependency is slow", "外部依赖缓慢"),
    Cause("traffic_changed", "", "client", "only the traffic changed", "仅流量发生变化"),
    Cause("gpu_fault", "", "gpu", "the GPU reported a fault", "GPU 故障"),
    Cause("unknown", "", "cpu", "unknown", "未知"),
)

BY_CODE: Final[dict[str, Cause]] = {cause.code: cause for cause in CAUSES}

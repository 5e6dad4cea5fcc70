"""What `tailtrace run` costs a real vLLM, and how much of its requests is explained.

Two servers on one machine, one with and one without, get the same load in turn; ratios are medians over the pairs.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from pathlib import Path

from collected import Collected, JudgedRequest, collecting, judged, spans_of
from harness import Figure, arguments, cpu_seconds, quantile, report, workspace
from vllm_server import Answer, Server, load, serving


def ttft_p50(answers: list[Answer]) -> float:
    return statistics.median(answer.ttft_ms for answer in answers if answer.ttft_ms is not None)


def compare(ours: Server, plain: Server, pairs: int, requests: int, seed: int) -> tuple[float, float]:
    """Throughput and TTFT P50 with / without: medians of the ratios of pairs run in turn."""
    throughput, ttft = [], []
    cpu: dict[int, list[float]] = {ours.pid: [], plain.pid: []}
    for pair in range(pairs):
        seconds: dict[int, float] = {}
        firsts: dict[int, float] = {}
        for server in (ours, plain) if pair % 2 == 0 else (plain, ours):
            before = cpu_seconds(server.pid)
            seconds[server.pid], answers = asyncio.run(load(server.port, requests, random.Random(seed + pair)))
            cpu[server.pid].append((cpu_seconds(server.pid) - before) / requests)
            firsts[server.pid] = ttft_p50(answers)
        throughput.append(seconds[plain.pid] / seconds[ours.pid])
        ttft.append(firsts[ours.pid] / firsts[plain.pid])
        print(
            f"  pair {pair + 1:2d}: throughput {throughput[-1]:.3f}  TTFT P50 {ttft[-1]:.3f}"
            f"  ({requests / seconds[ours.pid]:.2f} and {requests / seconds[plain.pid]:.2f} requests/s)",
            flush=True,
        )
    with_ms, without_ms = (statistics.median(cpu[server.pid]) * 1e3 for server in (ours, plain))
    print(f"\nCPU of all of vLLM's processes: {with_ms:.1f} ms a request with, {without_ms:.1f} ms without")
    print("throughput ratio, quartiles: " + ", ".join(f"{q:.3f}" for q in statistics.quantiles(throughput, n=4)))
    return statistics.median(throughput), statistics.median(ttft)


def explained(requests: list[JudgedRequest]) -> tuple[float, float]:
    shares = [request.explained for request in requests]
    return statistics.median(shares), quantile(shares, 0.05)


def describe(collected: Collected, requests: list[JudgedRequest]) -> None:
    """The means by stage, for people."""
    total = sum(request.duration_ms for request in requests)
    sums: dict[str, float] = {}
    for request in requests:
        for stage, ms in request.stages_ms.items():
            sums[stage] = sums.get(stage, 0.0) + ms
    print(f"\n{len(requests)} requests judged; share of their time by stage:")
    print("  " + "  ".join(f"{stage} {100 * ms / total:.2f}%" for stage, ms in sums.items()))
    steps = len(spans_of(collected.bodies, scope="tailtrace.steps"))
    print(f"  {steps} steps, {sum(map(len, collected.bodies)) / max(len(requests), 1):.0f} bytes sent a request")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vllm", type=Path, help="folder with a vLLM installation and a model (docs/vllm.md)")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--requests", type=int, default=32, help="requests of each run of a pair")
    options = parser.parse_args()
    figures: dict[str, Figure] = dict.fromkeys(
        ("throughput_ratio", "ttft_ratio", "explained_median", "explained_p5"), None
    )
    if options.vllm is None:
        print("not measured: needs --vllm DIR")
        report("vllm", options.seed, figures)
        return
    pairs, requests = (2, 12) if options.quick else (options.pairs, options.requests)
    with workspace(options.work) as work, collecting() as collected:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collected.endpoint}
        with (
            serving(options.vllm, work / "with.log", prefix=("tailtrace", "run", "--"), environ=environ) as ours,
            serving(options.vllm, work / "without.log") as plain,
        ):
            for server in (ours, plain):
                asyncio.run(load(server.port, 24, random.Random(options.seed)))
            figures["throughput_ratio"], figures["ttft_ratio"] = compare(ours, plain, pairs, requests, options.seed)
            asyncio.run(load(ours.port, requests, random.Random(options.seed), aborts=True))
        found = judged(collected.bodies, "/v1/")
        figures["explained_median"], figures["explained_p5"] = explained(found)
        describe(collected, found)
    report("vllm", options.seed, figures)


if __name__ == "__main__":
    main()

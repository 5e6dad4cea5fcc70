"""Ten minutes of paced load of all signals, after five of warm-up: does memory, or the number of parts, grow with time?

Memory of the process tree, active parts, journal and the jobs' lag are read every few seconds. The first third is
warm-up: caches fill, merges find their pace, and the first partition of the jobs' inbox is let go. Over the rest the
slope is Theil and Sen's (the median of all slopes between two readings), which a few odd readings cannot move. It fails
when memory grew by more than 5 % or parts by more than half, over the measured time.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations

import httpx
from harness import Figure, arguments, report, rss_mib, workspace
from load import LoadResult, send
from payload import BodyFactory
from product import Product, running
from signals import ITEMS_PER_BODY, SignalFactory

PARTS = "SELECT count() FROM system.parts WHERE active AND database = 'tailtrace'"
BY_TABLE = """
SELECT table, count() AS parts, sum(bytes_on_disk) AS bytes FROM system.parts WHERE active AND database = 'tailtrace'
GROUP BY table ORDER BY parts DESC LIMIT 8
"""
READ_S = 3.0
NOTHING_YET_S = 86_400.0  # before the first round of the jobs their lag counts from 1970
MEMORY_GROWTH = 0.05
PARTS_GROWTH = 0.5


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Theil and Sen's slope of values over times."""
    pairs = combinations(zip(times, values, strict=True), 2)
    return statistics.median((b - a) / (t - s) for (s, a), (t, b) in pairs)


def watch(product: Product, stop: Callable[[], bool]) -> list[tuple[float, float, float, float]]:
    """(seconds, MiB, parts, lag in seconds), read until told to stop."""
    readings = []
    started = time.monotonic()
    with httpx.Client(timeout=60) as client:
        while not stop():
            parts, lag = float(product.scalar(PARTS, client)), product.lag_s(client)
            if lag < NOTHING_YET_S:
                readings.append((time.monotonic() - started, rss_mib(product.pid), parts, lag))
            time.sleep(READ_S)
    return readings


async def load(product: Product, seed: int, seconds: float, spans_per_s: float) -> list[LoadResult]:
    """Traces at this rate, and a tenth as many points and log records."""
    traces, others = BodyFactory(seed=seed), SignalFactory(seed)
    rate = spans_per_s / traces.spans_per_body
    slow = spans_per_s / 10 / ITEMS_PER_BODY

    def paced(path: str, body: Callable[[int], bytes], per_s: float) -> asyncio.Task[LoadResult]:
        return asyncio.create_task(
            send(product.otlp_port, lambda: body(time.time_ns()), seconds=seconds, connections=4, bodies_per_s=per_s,
                 path=path)
        )  # fmt: skip

    tasks = [paced("/v1/traces", traces.body, rate), paced("/v1/metrics", others.metrics, slow),
             paced("/v1/logs", others.logs, slow)]  # fmt: skip
    return list(await asyncio.gather(*tasks))


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=900.0, help="length of the load, a third of it warm-up")
    parser.add_argument("--spans-per-s", type=float, default=5_000.0)
    options = parser.parse_args()
    seconds = 30.0 if options.quick else options.seconds
    with workspace(options.work) as work, running(work / "soak") as product:
        done = False

        async def both() -> tuple[list[LoadResult], list[tuple[float, float, float, float]]]:
            nonlocal done
            watcher = asyncio.create_task(asyncio.to_thread(watch, product, lambda: done))
            results = await load(product, options.seed, seconds, options.spans_per_s)
            done = True
            readings = await watcher
            tables = httpx.post(f"{product.ui}/api/v1/sql", json={"sql": BY_TABLE}, timeout=60).json()["rows"]
            print("parts:", ", ".join(f"{table} {count} ({size / 1e6:.1f} MB)" for table, count, size in tables))
            return results, readings

        results, readings = asyncio.run(both())
    measured = [reading for reading in readings if reading[0] >= seconds / 3]
    times, memory, parts, lag = zip(*measured, strict=True)
    span_s = times[-1] - times[0]
    grown = {name: slope(times, values) * span_s for name, values in (("memory", memory), ("parts", parts))}
    for at, mib, active, behind in readings[:: max(1, len(readings) // 12)]:
        print(f"{at:6.0f} s  {mib:6.0f} MiB  {active:5.0f} parts  {behind:5.1f} s behind")
    sent = [result.bodies for result in results]
    figures: dict[str, Figure] = {
        "seconds": seconds,
        "bodies": sum(sent),
        "refused": sum(result.refused for result in results),
        "rss_mib_median": statistics.median(memory),
        "rss_growth_mib": grown["memory"],
        "parts_median": statistics.median(parts),
        "parts_growth": grown["parts"],
        "lag_s_max": max(lag),
    }
    report("soak", options.seed, figures)
    if options.quick:  # half a minute shows that it runs, and is all warm-up
        return
    if grown["memory"] > MEMORY_GROWTH * statistics.median(memory):
        sys.exit(f"memory grew by {grown['memory']:.0f} MiB in {span_s:.0f} s")
    if grown["parts"] > PARTS_GROWTH * statistics.median(parts):
        sys.exit(f"parts grew by {grown['parts']:.0f} in {span_s:.0f} s")


if __name__ == "__main__":
    main()

"""How the `requests` job goes with 1, 2 and 4 workers, each on shards of its own, in one process with one engine.

The rows must be the same however many share the work. On as many cores as there are workers the time should fall with
their number; with fewer cores, or while the engine itself is what is busy, it cannot, so the cores are told.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from attribution import BATCH_SPANS, SPANS_PER_S, batch
from harness import arguments, report, workspace

from tailtrace.analytics.jobs.requests import run_requests, warm_up
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store, open_store

WORKERS = (1, 2, 4)
SPANS = 10
_DIGEST = """
SELECT count() AS n, sum(cityHash64(TraceId, SpanId, DurationNs, QueueNs, PrefillNs, DecodeNs, UnexplainedNs)) AS digest
FROM requests FINAL
"""


def fill(store: Store, seed: int, traces: int) -> int:
    """Puts the same traces into an empty inbox; gives the time at which all of them have settled."""
    for table in ("span_inbox", "requests", "watermarks", "rollup_1m", "rollup_1h", "rollup_1d"):
        store.command(f"TRUNCATE TABLE {table}")
    rng = np.random.default_rng(seed)
    now_ms = int(time.time() * 1000)
    step = BATCH_SPANS // SPANS
    for k in range(0, traces, step):
        came_ms = now_ms - 60_000 - (traces - k) * SPANS * 1000 // SPANS_PER_S
        store.insert_arrow("span_inbox", batch(rng, min(step, traces - k), SPANS, 0.5, came_ms))
    return now_ms


def judge(store: Store, now_ms: int, workers: int) -> tuple[float, float]:
    """(wall, CPU) seconds until every lane has nothing left."""

    def lane(number: int) -> None:
        while run_requests(store, now_ms=now_ms, lane=number, lanes=workers).behind:
            pass

    wall, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lane, range(workers)))
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    traces = 10_000 if options.quick else 100_000
    cores = os.cpu_count() or 1
    rates: dict[int, float] = {}
    digests = set()
    with workspace(options.work) as folder:
        store = open_store(ServerSettings(data=Path(folder) / "scaling"))
        warm_up()
        fill(store, options.seed, 2_000)
        for workers in (1, *WORKERS):  # the first round warms what only a first round needs
            wall, cpu = judge(store, fill(store, options.seed, traces), workers)
            found = store.query(_DIGEST)[0]
            digests.add((int(found["n"]), int(found["digest"])))
            rates[workers] = traces / wall
            print(
                f"  {workers} workers on {cores} cores: {traces / wall:,.0f} traces/s, CPU {cpu:.2f} s of {wall:.2f} s"
            )
        store.close()
    report(
        "scaling",
        options.seed,
        {
            "cores": cores,
            "traces_per_s_1": rates[1],
            "x_2": rates[2] / rates[1],
            "x_4": rates[4] / rates[1],
            "same_rows": int(len(digests) == 1),
        },
    )


if __name__ == "__main__":
    main()

"""What an insert and a lookup cost as the store grows tenfold, and tenfold again.

Spans are made inside the engine, as in `lookup`. At each size the same is measured in the same process: the median time
and CPU of inserting a segment of 25,000 spans, views included, and of reading a trace by its id, with the critical path
of its request. The jobs do not run.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path

from harness import Figure, arguments, in_own_process, report, workspace
from lookup import BULK, FILL, SPANS_PER_TRACE, trace_id_sql
from payload import BodyFactory

SEGMENT_SPANS = 25_000
SIZES = (10**6, 10**7, 10**8)
DAY_NS = 86_400 * 10**9


def measure(data: Path, sizes: list[int], seed: int, inserts: int, lookups: int) -> dict[int, dict[str, float]]:
    """The figures by size. Opens the store: call it `in_own_process`."""
    from tailtrace.analytics.queries import waterfall
    from tailtrace.ingest.framing import frame
    from tailtrace.ingest.settings import ServerSettings
    from tailtrace.ingest.store import open_store

    store = open_store(ServerSettings(data=data))
    bodies = BodyFactory(seed=seed)
    draw = random.Random(seed)
    segment = data / "segment.otlp"
    found: dict[int, dict[str, float]] = {}
    made = 0
    for size in sizes:
        began = time.monotonic()
        while made < size:
            count = min(BULK, size - made)
            window = {"from_ns": time.time_ns() - 2 * DAY_NS, "to_ns": time.time_ns() - DAY_NS}
            store.command(FILL, {"first": made, "count": count, "seed": seed, **window})
            made += count
            store.command("TRUNCATE TABLE span_inbox")  # a queue, which the jobs would keep short
        print(f"{size:,} spans after {time.monotonic() - began:.0f} s more", flush=True)
        took, cpu = [], []
        for number in range(inserts):
            with segment.open("wb") as file:
                for _ in range(SEGMENT_SPANS // bodies.spans_per_body):
                    body = bodies.body(time.time_ns())
                    file.write(frame(body) + body)
            used, started = time.process_time(), time.perf_counter()
            store.insert_segment("traces", segment, f"growth-{size}-{number}")
            took.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
        read = []
        for _ in range(lookups):
            trace = draw.randrange(size // SPANS_PER_TRACE)
            trace_id = store.query(trace_id_sql(), {"t": trace, "seed": seed})[0]["id"]
            started = time.perf_counter()
            if waterfall(store, trace_id).total != SPANS_PER_TRACE:
                raise RuntimeError(f"trace {trace_id} is not whole")
            read.append(time.perf_counter() - started)
        used_bytes = store.query(
            "SELECT sum(bytes_on_disk) AS n FROM system.parts WHERE active AND table = 'otel_traces'"
        )[0]["n"]
        found[size] = {
            "insert_ms": 1e3 * statistics.median(took),
            "insert_cpu_ms": 1e3 * statistics.median(cpu),
            "lookup_ms": 1e3 * statistics.median(read),
            "gb": used_bytes / 1e9,
        }
        print({name: round(value, 2) for name, value in found[size].items()}, flush=True)
    store.close()
    return found


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--max", type=float, default=1e8, help="largest number of spans")
    options = parser.parse_args()
    sizes = [100_000, 200_000] if options.quick else [size for size in SIZES if size <= options.max]
    inserts, lookups = (3, 10) if options.quick else (20, 100)
    with workspace(options.work) as work:
        found = in_own_process(measure, work / f"growth-{os.getpid()}", sizes, options.seed, inserts, lookups)
    figures: dict[str, Figure] = {}
    for size, values in found.items():
        figures.update({f"{name}_{size:.0e}".replace("e+0", "e"): value for name, value in values.items()})
    first, last = found[sizes[0]], found[sizes[-1]]
    for name in ("insert_ms", "insert_cpu_ms", "lookup_ms"):
        figures[f"x_{name}"] = last[name] / first[name]
    report("growth", options.seed, figures)


if __name__ == "__main__":
    main()

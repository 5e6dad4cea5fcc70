"""A trace by its id in a store of ten million spans, over the API.

`trace_ms_1e7` is the trace with its spans and the critical path through them (`/requests/ID/waterfall`), which is what
other stores give for an id. `request_ms_1e7` is all that the page of a request shows at first (`/requests/ID`): stored
row, stages, path and spans, and the verdict with its evidence, which reads the time around the request too. Each is
asked of traces of its own, in a pass of its own: neither finds in a cache what the other has just read of that trace,
nor waits for what it left behind.

The spans are made inside the engine: 10 a trace, random ids, a day of time that arrives in its order, a piece of the
day with each insert. The last million arrives as 40 small segments, so that the newest data lies in unmerged parts as
it does in use. The jobs judge all of it before the clock starts.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import httpx
from harness import Figure, arguments, cpu_seconds, in_own_process, quantile, report, workspace
from product import Product, running

SPANS_PER_TRACE = 10
SMALL_SEGMENT = 25_000
ASKED = {"trace": "/waterfall", "request": ""}
BULK = 250_000

# {first}..{first}+{count}: span numbers; ten consecutive ones are a trace. {from_ns}, {to_ns}: when traces start.
FILL = """
INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, ResourceAttributes,
  ScopeName, SpanAttributes, Duration, StatusCode)
SELECT
  fromUnixTimestamp64Nano({from_ns:Int64} + j * 20000000
    + toInt64(sipHash64(t, 'when') % toUInt64({to_ns:Int64} - {from_ns:Int64})), 'UTC'),
  lower(hex(sipHash128(t, {seed:UInt64}))), leftPad(lower(hex(sipHash64(number, {seed:UInt64}))), 16, '0'),
  if(j = 0, '', leftPad(lower(hex(sipHash64(t * 10, {seed:UInt64}))), 16, '0')),
  ['POST /v1/chat/completions', 'auth', 'route', 'tokenize', 'llm_request', 'queue', 'prefill', 'decode', 'detokenize',
   'send'][j + 1],
  if(j IN (0, 4), 'Server', 'Internal'), if(j = 4, 'vllm', 'gateway'),
  map('service.name', if(j = 4, 'vllm', 'gateway'), 'service.version', '1.4.2',
      'service.instance.id', toString(t % 8), 'host.name', concat('node-', toString(t % 8))),
  'tailtrace',
  if(j = 0, map('tailtrace.request', 'true', 'http.route', '/v1/chat/completions', 'gen_ai.request.model', 'llama-3-8b',
      'gen_ai.usage.input_tokens', toString(t % 4000), 'gen_ai.usage.output_tokens', toString(t % 400)),
    map('tailtrace.stage', ['', 'auth', 'route', 'tokenize', 'app', 'queue', 'prefill', 'decode', 'detokenize',
      'stream_out'][j + 1], 'thread.id', toString(number % 64))),
  if(j = 0, 300000000, 20000000) + number % 1000000, 'Unset'
FROM (SELECT number, intDiv(number, 10) AS t, number % 10 AS j FROM numbers_mt({first:UInt64}, {count:UInt64}))
"""


def trace_id_sql() -> str:
    return "SELECT lower(hex(sipHash128({t:UInt64}, {seed:UInt64}))) AS id"


def fill(data: Path, spans: int, seed: int, sample: list[int]) -> list[str]:
    """Fills the store and gives the ids of the sampled traces. Opens the store: call it `in_own_process`."""
    from tailtrace.ingest.settings import ServerSettings
    from tailtrace.ingest.store import open_store

    store = open_store(ServerSettings(data=data))
    minute_ns = 60 * 10**9
    end_ns = time.time_ns() - 10**9
    small = 40 * SMALL_SEGMENT if spans > 80 * SMALL_SEGMENT else 0
    bulk = spans - small
    day = [minute_ns + 1439 * minute_ns * (bulk - first) // bulk for first in range(0, bulk, BULK)]
    pieces = [
        (first, min(BULK, bulk - first), oldest, newest)
        for first, oldest, newest in zip(range(0, bulk, BULK), day, [*day[1:], minute_ns], strict=True)
    ]
    pieces += [(first, SMALL_SEGMENT, minute_ns, 0) for first in range(bulk, spans, SMALL_SEGMENT)]
    for first, count, oldest_ns, newest_ns in pieces:
        window = {"from_ns": end_ns - oldest_ns, "to_ns": end_ns - newest_ns}
        store.command(FILL, {"first": first, "count": count, "seed": seed, **window})
    ids = [store.query(trace_id_sql(), {"t": t, "seed": seed})[0]["id"] for t in sample]
    store.close()
    return ids


def wait_quiet(product: Product, timeout_s: float) -> None:
    """Until the product uses less than a fifth of a core for three seconds: jobs and merges are done."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        before = cpu_seconds(product.pid)
        time.sleep(3)
        if cpu_seconds(product.pid) - before < 0.6:
            return
    print("the jobs were still at work when the measurement began")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--lookups", type=int, default=200)
    options = parser.parse_args()
    spans = 200_000 if options.quick else options.spans
    lookups = 50 if options.quick else options.lookups
    draw = random.Random(options.seed)
    sample = draw.sample(range(spans // SPANS_PER_TRACE), len(ASKED) * lookups)
    figures: dict[str, Figure] = {"trace_ms_1e7": None, "request_ms_1e7": None}
    with workspace(options.work) as work:
        data = work / "lookup"
        started = time.monotonic()
        ids = in_own_process(fill, data, spans, options.seed, sample)
        print(f"{spans:,} spans made in {time.monotonic() - started:.0f} s")
        with running(data) as product, httpx.Client(timeout=60) as client:
            wait_quiet(product, 15 if options.quick else 600)
            took: dict[str, list[float]] = {}
            for place, (name, path) in enumerate(ASKED.items()):
                times = took[name] = []
                for trace_id in ids[place * lookups : (place + 1) * lookups]:
                    began = time.perf_counter()
                    response = client.get(f"{product.ui}/api/v1/requests/{trace_id}{path}")
                    times.append((time.perf_counter() - began) * 1e3)
                    if response.status_code != 200:
                        raise RuntimeError(f"trace {trace_id}: {response.status_code} {response.text[:300]}")
        for name, times in took.items():
            median = statistics.median(times)
            print(
                f"{name} by id over the API: P50 {median:.1f} ms, P95 {quantile(times, 0.95):.1f} ms, {lookups} traces"
            )
            figures[f"{name}_ms_1e7"] = median if spans >= 10_000_000 else None
            figures[f"{name}_ms_{spans}"] = median
    report("lookup", options.seed, figures)


if __name__ == "__main__":
    main()

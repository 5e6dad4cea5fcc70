"""Spans a second from a sender until they can be queried, on the same cores as the load generator.

Acknowledged means fsynced. A run sends as fast as it is acknowledged over 16 connections and ends when every
acknowledged span is in the store (`store`: jobs off) and, with the jobs on, when every trace has its request (`jobs`):
the rates include that wait. While it runs, single probe spans are sent and looked for (`queryable_s_load`, P95 of
them); the same on a quiet server is `queryable_s_idle`. Bytes a span are those of the active parts after merges, side
table included.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from harness import Figure, PeakMemory, arguments, cpu_seconds, in_own_process, quantile, report, wait_until, workspace
from load import LoadResult, send
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from payload import BodyFactory
from peers import MLFLOW, PHOENIX, Peer, peer_spans_per_s
from product import Product, running

SPANS_PER_TRACE = 10
PROBE_EVERY_S = 2.0


@dataclass
class Run:
    """One load against one product."""

    spans: int
    stored_s: float
    judged_s: float
    cpu_s: float
    rss_mib: float
    queryable_s: list[float]
    lag_s: list[float]
    load: LoadResult


def probe_body(trace_id: bytes) -> bytes:
    """One server span that starts and ends now."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    attribute = resource.resource.attributes.add()
    attribute.key, attribute.value.string_value = "service.name", "probe"
    span = resource.scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.name, span.kind = trace_id, os.urandom(8), "probe", 2
    span.end_time_unix_nano = time.time_ns()
    span.start_time_unix_nano = span.end_time_unix_nano - 1_000_000
    return bytes(request.SerializeToString())


def probe(product: Product, client: httpx.Client, every_s: float) -> float:
    """Seconds from before a span is sent until a query finds it."""
    trace_id = os.urandom(16)
    began = time.monotonic()
    answer = client.post(
        f"http://127.0.0.1:{product.otlp_port}/v1/traces",
        content=probe_body(trace_id),
        headers={"content-type": "application/x-protobuf"},
    )
    answer.raise_for_status()
    found = f"SELECT count() FROM otel_traces WHERE Timestamp > now() - 600 AND TraceId = '{trace_id.hex()}'"
    wait_until(lambda: product.scalar(found, client) > 0, 60, "the probe span being found", every_s)
    return time.monotonic() - began


def load_product(product: Product, bodies: BodyFactory, seconds: float, *, jobs: bool) -> Run:
    """Loads the product for `seconds`, then waits until it is done with all of it."""
    queryable: list[float] = []
    lag: list[float] = []

    def watch(stop: Callable[[], bool]) -> None:
        with httpx.Client(timeout=60) as client:
            while not stop():
                queryable.append(probe(product, client, 0.05))
                if jobs:
                    lag.append(product.lag_s(client))
                time.sleep(PROBE_EVERY_S)

    async def sending() -> LoadResult:
        done = False
        watcher = asyncio.create_task(asyncio.to_thread(watch, lambda: done))
        result = await send(product.otlp_port, lambda: bodies.body(time.time_ns()), seconds=seconds)
        done = True
        await watcher
        return result

    with PeakMemory(product.pid) as memory, httpx.Client(timeout=60) as client:
        before = product.scalar("SELECT count() FROM otel_traces", client)
        used, started = cpu_seconds(product.pid), time.monotonic()
        result = asyncio.run(sending())
        spans = result.bodies * bodies.spans_per_body
        sent = before + spans + len(queryable)
        wait_until(lambda: product.scalar("SELECT count() FROM otel_traces", client) >= sent, 600, "storing", 0.1)
        stored_s = time.monotonic() - started
        if jobs:
            traces = before + spans // SPANS_PER_TRACE + len(queryable)  # what was before are probes, one span each
            count = "SELECT sum(Sign) FROM requests WHERE IsRoot"
            wait_until(lambda: product.scalar(count, client) >= traces, 600, "judging", 0.25)
        judged_s = time.monotonic() - started
        stored = product.scalar("SELECT count() FROM otel_traces", client)
        if stored != sent:
            raise RuntimeError(f"{sent:,} spans acknowledged, {stored:,} stored")
        return Run(spans, stored_s, judged_s, cpu_seconds(product.pid) - used, memory.mib, queryable, lag, result)


def bytes_per_span(data: Path) -> float:
    """Bytes a span on disk after merges. Opens the store: call it `in_own_process`."""
    from tailtrace.ingest.settings import ServerSettings
    from tailtrace.ingest.store import open_store

    store = open_store(ServerSettings(data=data))
    tables = ("otel_traces", "otel_traces_trace_id_ts")
    for table in tables:
        store.command(f"OPTIMIZE TABLE {table} FINAL")
    size = store.query(
        "SELECT sum(bytes_on_disk) AS bytes, sumIf(rows, table = 'otel_traces') AS spans FROM system.parts "
        "WHERE active AND database = currentDatabase() AND table IN {tables:Array(String)}",
        {"tables": list(tables)},
    )[0]
    store.close()
    return float(size["bytes"] / size["spans"])


def show(name: str, run: Run) -> None:
    print(
        f"{name}: {run.spans:,} spans, acknowledged {run.spans / run.load.seconds:,.0f}/s, stored after "
        f"{run.stored_s:.1f} s, judged after {run.judged_s:.1f} s, refused {run.load.refused}, acknowledgement P50 "
        f"{quantile(run.load.ack_ms, 0.5):.0f} ms P99 {quantile(run.load.ack_ms, 0.99):.0f} ms, "
        f"queryable max {max(run.queryable_s):.2f} s" + (f", lag max {max(run.lag_s):.1f} s" if run.lag_s else "")
    )


def ratio(peer: Peer, work: Path, seed: int, seconds: float, pairs: int) -> float:
    """Median of ours / theirs over interleaved pairs, the same bodies, each until stored (ours: until judged)."""
    ratios = []
    for pair in range(pairs):
        with running(work / f"against-{peer.name}-{pair}") as product:
            run = load_product(product, BodyFactory(seed=seed), seconds, jobs=True)
        theirs = peer_spans_per_s(peer, work, BodyFactory(seed=seed), seconds)
        ratios.append(run.spans / run.judged_s / theirs)
        print(f"pair {pair}: ours {run.spans / run.judged_s:,.0f}, {peer.name} {theirs:,.0f} spans/s")
    return statistics.median(ratios)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds of load, each run")
    parser.add_argument("--peers", action="store_true", help="also MLflow and Phoenix, installed below --work")
    options = parser.parse_args()
    seconds = 6.0 if options.quick else options.seconds
    figures: dict[str, Figure] = dict.fromkeys(
        ("spans_per_s_store", "spans_per_s_jobs", "cpu_us_per_span_store", "cpu_us_per_span_jobs", "rss_peak_mib",
         "queryable_s_load", "queryable_s_idle", "bytes_per_span", "lag_s_jobs", "x_mlflow", "x_phoenix")
    )  # fmt: skip
    with workspace(options.work) as work:
        with running(work / "ingest-store", {"TAILTRACE_JOBS": "false"}) as product:
            store = load_product(product, BodyFactory(seed=options.seed), seconds, jobs=False)
        show("store only", store)
        figures["spans_per_s_store"] = store.spans / store.stored_s
        figures["cpu_us_per_span_store"] = 1e6 * store.cpu_s / store.spans

        with running(work / "ingest-jobs") as product:
            with httpx.Client(timeout=60) as client:
                idle = []
                for _ in range(3 if options.quick else 10):
                    time.sleep(2.0)
                    idle.append(probe(product, client, 0.01))
            jobs = load_product(product, BodyFactory(seed=options.seed), seconds, jobs=True)
        show("with jobs", jobs)
        figures["spans_per_s_jobs"] = jobs.spans / jobs.judged_s
        figures["cpu_us_per_span_jobs"] = 1e6 * jobs.cpu_s / jobs.spans
        figures["rss_peak_mib"] = max(store.rss_mib, jobs.rss_mib)
        figures["queryable_s_load"] = max(quantile(run.queryable_s, 0.95) for run in (store, jobs))
        figures["queryable_s_idle"] = statistics.median(idle)
        figures["lag_s_jobs"] = max(jobs.lag_s)
        figures["bytes_per_span"] = in_own_process(bytes_per_span, work / "ingest-jobs")

        if options.peers and not options.quick:
            for peer in (MLFLOW, PHOENIX):
                figures[f"x_{peer.name}"] = ratio(peer, work, options.seed, seconds=30.0, pairs=3)
    report("ingest", options.seed, figures)


if __name__ == "__main__":
    main()

"""Spans a second from a sender until they can be queried, on the same cores as the load generator.

Acknowledged means fsynced. A run sends as fast as it is acknowledged over 16 connections and ends when every
acknowledged span is in the store (`store`: jobs off) and, with the jobs on, when every trace has its request (`jobs`):
the rates include that wait. While it runs, single probe spans are sent and looked for (`queryable_s_load`, P95 of
them), four times a second: each look is a query over the newest parts, and more of them would be load of the bench's
own. The same on a quiet server is `queryable_s_idle`. Bytes a span are those of the active parts after merges, side
table included. CPU a span is that of the product's processes alone, until all is stored or judged; the load generator,
which shares the cores, is not in it. Give each run a `--work` of its own, or none.

`--mixed` adds a run with metrics and logs beside the spans, 10,000 points and 10,000 records a second; `--receivers N`
runs with 1 to N receiver processes on one ClickHouse server, spans stored, jobs off.
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
from fleet import fleet
from harness import Figure, PeakMemory, arguments, cpu_seconds, in_own_process, quantile, report, wait_until, workspace
from load import LoadResult, send
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from payload import BodyFactory
from peers import MLFLOW, PHOENIX, Peer, peer_spans_per_s
from product import Product, running
from signals import ITEMS_PER_BODY, SignalFactory

SPANS_PER_TRACE = 10
PROBE_EVERY_S = 2.0
LOOK_EVERY_S = 0.25
OTHERS_PER_S = 10_000
OTHERS = (
    "SELECT (SELECT count() FROM otel_logs) + (SELECT count() FROM otel_metrics_gauge) "
    "+ (SELECT count() FROM otel_metrics_histogram)"
)


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
    others: int = 0


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


async def send_others(port: int, seed: int, seconds: float) -> int:
    """Points and records that were acknowledged, of as many bodies as come to 10,000 items a second each."""
    factory = SignalFactory(seed)
    results = await asyncio.gather(
        *(
            send(port, lambda make=make: make(time.time_ns()), seconds=seconds, connections=2, path=path,  # type: ignore[misc]
                 bodies_per_s=OTHERS_PER_S / ITEMS_PER_BODY)
            for path, make in (("/v1/metrics", factory.metrics), ("/v1/logs", factory.logs))
        )
    )  # fmt: skip
    return sum(result.bodies for result in results) * ITEMS_PER_BODY


def load_product(
    product: Product, bodies: BodyFactory, seconds: float, *, jobs: bool, mixed_seed: int | None = None
) -> Run:
    """Loads the product for `seconds`, then waits until it is done with all of it; `mixed_seed` adds other signals."""
    queryable: list[float] = []
    lag: list[float] = []

    def watch(stop: Callable[[], bool]) -> None:
        with httpx.Client(timeout=60) as client:
            while not stop():
                queryable.append(probe(product, client, LOOK_EVERY_S))
                if jobs:
                    lag.append(product.lag_s(client))
                time.sleep(PROBE_EVERY_S)

    async def sending() -> LoadResult:
        done = False
        watcher = asyncio.create_task(asyncio.to_thread(watch, lambda: done))
        rest = [] if mixed_seed is None else [send_others(product.otlp_port, mixed_seed, seconds)]
        result, *sent = await asyncio.gather(
            send(product.otlp_port, lambda: bodies.body(time.time_ns()), seconds=seconds), *rest
        )
        done = True
        await watcher
        others.extend(sent)
        return result

    others: list[int] = []

    with PeakMemory(product.pid) as memory, httpx.Client(timeout=60) as client:
        before = product.scalar("SELECT count() FROM otel_traces", client)
        used, started = cpu_seconds(product.pid), time.monotonic()
        result = asyncio.run(sending())
        spans = result.bodies * bodies.spans_per_body
        sent = before + spans + len(queryable)
        wait_until(lambda: product.scalar("SELECT count() FROM otel_traces", client) >= sent, 600, "storing", 0.1)
        for items in others:
            wait_until(lambda items=items: product.scalar(OTHERS, client) >= items, 600, "storing the rest", 0.1)  # type: ignore[misc]
        stored_s = time.monotonic() - started
        if jobs:
            traces = before + spans // SPANS_PER_TRACE + len(queryable)  # what was before are probes, one span each
            count = "SELECT sum(Sign) FROM requests WHERE IsRoot"
            wait_until(lambda: product.scalar(count, client) >= traces, 600, "judging", 0.25)
        judged_s = time.monotonic() - started
        stored = product.scalar("SELECT count() FROM otel_traces", client)
        if stored != sent:
            raise RuntimeError(f"{sent:,} spans acknowledged, {stored:,} stored")
        cpu_s = cpu_seconds(product.pid) - used
        return Run(spans, stored_s, judged_s, cpu_s, memory.mib, queryable, lag, result, sum(others))


def load_fleet(work: Path, receivers: int, seed: int, seconds: float) -> float:
    """Spans a second until stored, sent to this many receivers by as many connections in all as ever."""

    async def sending(ports: list[int]) -> int:
        factories = [BodyFactory(seed=seed + 1000 * k) for k in range(len(ports))]
        results = await asyncio.gather(
            *(
                send(port, lambda own=own: own.body(time.time_ns()), seconds=seconds, connections=16 // len(ports))  # type: ignore[misc]
                for port, own in zip(ports, factories, strict=True)
            )
        )
        return sum(result.bodies for result in results) * factories[0].spans_per_body

    with fleet(work / f"ingest-receivers-{receivers}", receivers) as running_fleet:
        started = time.monotonic()
        spans = asyncio.run(sending(running_fleet.otlp_ports))
        count = "SELECT count() FROM otel_traces"
        wait_until(lambda: running_fleet.scalar(count) >= spans, 600, "storing", 0.1)
        took = time.monotonic() - started
        if running_fleet.scalar(count) != spans:
            raise RuntimeError(f"{spans:,} spans acknowledged, {running_fleet.scalar(count):,} stored")
    print(f"{receivers} receivers: {spans:,} spans, stored after {took:.1f} s")
    return spans / took


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
    parser.add_argument("--mixed", action="store_true", help="also a run with metrics and logs beside the spans")
    parser.add_argument("--receivers", type=int, default=0, help="also runs with 1 to N receiver processes on a server")
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

        if options.mixed:
            with running(work / "ingest-mixed") as product:
                mixed = load_product(
                    product, BodyFactory(seed=options.seed), seconds, jobs=True, mixed_seed=options.seed
                )
            show("with metrics and logs", mixed)
            figures["spans_per_s_mixed"] = mixed.spans / mixed.judged_s
            figures["items_per_s_mixed"] = (mixed.spans + mixed.others) / mixed.judged_s
            figures["cpu_us_per_item_mixed"] = 1e6 * mixed.cpu_s / (mixed.spans + mixed.others)
        for receivers in range(1, options.receivers + 1):
            figures[f"spans_per_s_receivers_{receivers}"] = load_fleet(work, receivers, options.seed, seconds)

        if options.peers and not options.quick:
            for peer in (MLFLOW, PHOENIX):
                figures[f"x_{peer.name}"] = ratio(peer, work, options.seed, seconds=30.0, pairs=3)
    report("ingest", options.seed, figures)


if __name__ == "__main__":
    main()

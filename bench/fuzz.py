"""Hostile bodies at every OTLP door: does anything crash the receiver, hang it, or stop the store behind it?

The receiver runs in a process of its own, with the real journal and the real engine. Inputs are requests that were
mutated as bytes, requests built field by field from random numbers and types, JSON with values in wrong places, and
damaged compression. Between them go good spans; in the end each of those must be stored.

crashes = the process died, or an answer was 5xx other than 501 and 503; hangs = no answer within 20 s; poisoned =
bodies that were accepted and that the store then refused, and good spans that are not stored.

    python bench/fuzz.py [--seed N] [--quick] [--inputs N]
"""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvicorn
from harness import arguments, report, workspace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailtrace.ingest.pipeline import Pipeline
from tailtrace.ingest.receiver import Counters, create_app, create_grpc_server
from tailtrace.ingest.receiver.checks.wire import length_field, varint
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import open_store

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ANSWER_S = 20.0
CONNECTIONS = 32
CANARY_EVERY = 50
_GRPC = "/opentelemetry.proto.collector.{0}.v1.{1}Service/Export"
_METHODS = {
    "traces": _GRPC.format("trace", "Trace"),
    "metrics": _GRPC.format("metrics", "Metrics"),
    "logs": _GRPC.format("logs", "Logs"),
}


def serve(pipe: Connection, data: str) -> None:
    """The process under attack: doors, journal and engine; answers "count" and "stop" on the pipe."""

    async def doors() -> None:
        settings = ServerSettings(data=Path(data), min_free_bytes=0)
        store = open_store(settings)
        pipeline = Pipeline(store, settings.data / "journal", settings)
        pipeline.start()
        counters = Counters()
        grpc_server = create_grpc_server(pipeline, settings, counters)
        grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
        await grpc_server.start()
        app: Any = create_app(pipeline, settings, counters)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", http="httptools"))
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        pipe.send((server.servers[0].sockets[0].getsockname()[1], grpc_port))
        while await asyncio.to_thread(pipe.recv) == "count":
            await asyncio.to_thread(pipeline.flush, 120)
            canaries = store.query("SELECT count() AS n FROM otel_traces WHERE SpanName = 'canary'")[0]["n"]
            pipe.send((pipeline.counters(), counters.snapshot(), canaries))
        server.should_exit = True
        await running
        await grpc_server.stop(1)
        pipeline.stop()
        store.close()

    asyncio.run(doors())


def now() -> int:
    return time.time_ns()


def seed_trace(rng: random.Random) -> ExportTraceServiceRequest:
    """A request that uses every field that is stored."""
    nested = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a", value=AnyValue(bytes_value=b"\0\1"))]))
    array = AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=-1), AnyValue(string_value="s"), nested]))
    values = [
        nested,
        array,
        AnyValue(bool_value=True),
        AnyValue(double_value=0.5),
        AnyValue(string_value="é"),
        AnyValue(),
    ]
    request = ExportTraceServiceRequest()
    for _ in range(rng.randint(1, 2)):
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "fuzz"
        scope = resource.scope_spans.add()
        scope.scope.name = rng.choice(["fuzz", "tailtrace", "tailtrace.steps"])
        scope.scope.attributes.add(key="tailtrace.dropped").value.string_value = "queue_full:3"
        for _ in range(rng.randint(1, 4)):
            start = now() - rng.randrange(10**12)
            attributes = [KeyValue(key=f"k{i}", value=rng.choice(values)) for i in range(rng.randint(0, 4))]
            scope.spans.add(
                trace_id=rng.randbytes(16), span_id=rng.randbytes(8),
                parent_span_id=rng.choice([b"", rng.randbytes(8)]), name="fuzzed", kind=rng.randint(0, 5),
                start_time_unix_nano=start, end_time_unix_nano=start + 1000,
                attributes=attributes, trace_state="a=b",
                events=[Span.Event(time_unix_nano=start, name="e", attributes=attributes)],
                links=[Span.Link(trace_id=rng.randbytes(16), span_id=rng.randbytes(8), attributes=attributes)],
            ).status.code = rng.randint(0, 2)  # fmt: skip
    return request


def seed_metrics(rng: random.Random) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="g").gauge.data_points.add(time_unix_nano=now(), as_double=rng.random())
    metrics.add(name="s").sum.data_points.add(time_unix_nano=now(), as_int=rng.randrange(100))
    attributes = [KeyValue(key="k", value=AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1)])))]
    exemplar = {"time_unix_nano": now(), "as_double": 0.5, "span_id": rng.randbytes(8), "trace_id": rng.randbytes(16)}
    metrics.add(name="h").histogram.data_points.add(
        time_unix_nano=now(), count=1, sum=0.5, bucket_counts=[0, 1], explicit_bounds=[0.1], attributes=attributes,
        exemplars=[exemplar],
    )  # fmt: skip
    metrics.add(name="e").exponential_histogram.data_points.add(
        time_unix_nano=now(), count=2, scale=-1, positive={"offset": 1, "bucket_counts": [1, 300]}, zero_count=1,
        negative={"offset": -1, "bucket_counts": [1]}, exemplars=[exemplar],
    )  # fmt: skip
    metrics.add(name="q").summary.data_points.add(time_unix_nano=now(), quantile_values=[{"quantile": 0.5, "value": 1}])
    return request


def seed_logs(rng: random.Random) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add(schema_url="r").scope_logs.add(schema_url="s")
    nested = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a", value=AnyValue(bytes_value=b"\0"))]))
    for _ in range(rng.randint(1, 3)):
        scope.log_records.add(
            time_unix_nano=now(), observed_time_unix_nano=now(), severity_number=9, severity_text="INFO",
            trace_id=rng.randbytes(16), span_id=rng.randbytes(8), flags=1, event_name="e",
            body=rng.choice((AnyValue(string_value="é"), nested)), attributes=[KeyValue(key="k", value=nested)],
        )  # fmt: skip
    return request


_SEEDS: dict[str, Callable[[random.Random], Any]] = {"traces": seed_trace, "metrics": seed_metrics, "logs": seed_logs}


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A few changes of bytes: flips, cuts, copies, numbers at the edges."""
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        if not body:
            break
        at = rng.randrange(len(body))
        match rng.randrange(6):
            case 0:
                body[at] ^= 1 << rng.randrange(8)
            case 1:
                body[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del body[at : at + rng.randint(1, 16)]
            case 3:
                body[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4:
                part = body[at : at + rng.randint(1, 64)]
                to = rng.randrange(len(body))
                body[to:to] = part
            case _:
                body[at : at + 9] = varint(rng.choice((0, 2**31, 2**32, 2**63, 2**64 - 1)))
    return bytes(body)


def built(rng: random.Random, depth: int = 0) -> bytes:
    """A message of fields with numbers that OTLP uses and contents of any type: sound as protobuf, rarely as OTLP."""
    parts = []
    for _ in range(rng.randint(0, 5)):
        number = rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 200))
        match rng.randrange(8 if depth < 9 else 5):
            case 0:
                parts.append(varint(number << 3) + varint(rng.choice((0, 1, 2, 255, 2**31, 2**63, 2**64 - 1))))
            case 1:
                parts.append(varint(number << 3 | 1) + rng.choice((rng.randbytes(8), now().to_bytes(8, "little"))))
            case 2:
                parts.append(varint(number << 3 | 5) + rng.randbytes(4))
            case 3 | 4:
                parts.append(length_field(number, rng.randbytes(rng.choice((0, 1, 8, 16, 40)))))
            case _:
                parts.append(length_field(number, built(rng, depth + 1)))
    return b"".join(parts)


def good_item(rng: random.Random, signal: str) -> tuple[bytes, tuple[int, ...], tuple[int, ...]]:
    """A good span, log record or point; numbers of its fields that hold bytes; the fields of a metric around it."""
    start = now() - 10**9
    if signal == "traces":
        span = Span(
            trace_id=rng.randbytes(16), span_id=rng.randbytes(8), name="fuzzed",
            start_time_unix_nano=start, end_time_unix_nano=start,
        )  # fmt: skip
        return span.SerializeToString(), (3, 5, 9, 9, 9, 11, 13, 15), ()
    if signal == "logs":
        return LogRecord(time_unix_nano=start).SerializeToString(), (3, 5, 5, 6, 6, 9, 10, 12), ()
    kind = rng.choice((5, 7, 9, 9, 10, 10, 11))
    held = {5: (5, 7), 7: (5, 7), 9: (6, 6, 7, 7, 8, 9), 10: (1, 8, 8, 9, 9, 11), 11: (6, 7)}[kind]
    return NumberDataPoint(time_unix_nano=start).SerializeToString(), held, (kind, 1)


def grafted(rng: random.Random, signal: str) -> bytes:
    """A good item with legal and illegal fields behind it: what a plain parser merges, a columnar one may refuse."""
    item, held, around = good_item(rng, signal)
    number = rng.choice(held)
    extra = b"".join(
        length_field(number, b"" if rng.random() < 0.2 else built(rng, 7)) for _ in range(rng.randint(1, 3))
    )
    scope = length_field(1, built(rng, 8)) if rng.random() < 0.3 else b""
    resource = length_field(1, built(rng, 8)) if rng.random() < 0.3 else b""
    inner = item + extra
    for each in reversed(around):
        inner = length_field(each, inner)
    return length_field(1, resource + length_field(2, scope + length_field(2, inner)))


_ODD: tuple[Any, ...] = (
    None, True, -1, 0.5, 2**63, 2**64, 1e400, "", "x", "\ud800", "0" * 32, "W47/95gDgQPSabYzgT/GDA==", [], {}, [[[[]]]],
    {"stringValue": {"a": 1}}, {"arrayValue": {"values": [{"kvlistValue": {"values": [5, None]}}]}}, "9" * 400,
)  # fmt: skip


def json_body(rng: random.Random, signal: str) -> bytes:
    """OTLP/JSON with a few values replaced, moved or damaged as text."""
    start = str(now())
    value = rng.choice(({"intValue": "1"}, {"stringValue": "a"}, {"arrayValue": {"values": [{"boolValue": True}]}}))
    attributes = [{"key": "k", "value": value}]
    span = {
        "traceId": rng.randbytes(16).hex(), "spanId": rng.randbytes(8).hex(), "name": "fuzzed", "kind": 2,
        "startTimeUnixNano": start, "endTimeUnixNano": start, "attributes": attributes, "status": {"code": 1},
        "events": [{"timeUnixNano": start, "name": "e", "attributes": attributes}],
        "links": [{"traceId": rng.randbytes(16).hex(), "spanId": rng.randbytes(8).hex()}],
    }  # fmt: skip
    point = {
        "timeUnixNano": start, "asInt": "5", "attributes": attributes, "bucketCounts": ["1"], "explicitBounds": [],
        "positive": {"offset": 1, "bucketCounts": ["2", 3]}, "quantileValues": [{"quantile": 0.5, "value": "NaN"}],
    }  # fmt: skip
    held = rng.choice(("gauge", "sum", "histogram", "exponentialHistogram", "summary"))
    record = {
        "timeUnixNano": start, "severityNumber": 9, "body": value, "attributes": attributes,
        "traceId": rng.randbytes(16).hex(), "spanId": rng.randbytes(8).hex(),
    }  # fmt: skip
    inner, kind = {
        "traces": ({"spans": [span]}, "Spans"),
        "metrics": ({"metrics": [{"name": "m", held: {"dataPoints": [point]}}]}, "Metrics"),
        "logs": ({"logRecords": [record]}, "Logs"),
    }[signal]
    tree: Any = copy.deepcopy({f"resource{kind}": [{"resource": {"attributes": attributes}, f"scope{kind}": [inner]}]})
    for _ in range(rng.randint(0, 2)):
        node = tree
        while isinstance(node, dict | list) and node:
            key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            if rng.random() < 0.2 or not isinstance(node[key], dict | list) or not node[key]:
                node[key] = copy.deepcopy(rng.choice(_ODD))
                break
            node = node[key]
    body = json.dumps(tree).encode()
    return mutated(rng, body) if rng.random() < 0.3 else body


Input = tuple[str, str, bytes, str]  # door, signal, body, content encoding


def one_input(rng: random.Random) -> Input:
    """The next hostile request."""
    signal = rng.choices(("traces", "metrics", "logs"), (50, 30, 20))[0]
    door = rng.choices(("protobuf", "json", "packed", "grpc"), (45, 25, 18, 12))[0]
    if door == "json":
        return door, signal, json_body(rng, signal), "identity"
    body = _SEEDS[signal](rng).SerializeToString()
    match rng.randrange(6):
        case 0:
            body = built(rng)
        case 1 | 2:
            body = grafted(rng, signal)
        case _:
            body = mutated(rng, body)
    if door != "packed":
        return door, signal, body, "identity"
    encoding = rng.choice(("gzip", "zstd"))
    pack = gzip.compress if encoding == "gzip" else zstd.compress
    packed = pack(body, 1) * rng.choice((1, 1, 2))
    return door, signal, mutated(rng, packed) if rng.random() < 0.6 else packed, encoding


def canary(rng: random.Random) -> Input:
    """A good span, which must be stored whatever comes beside it."""
    start = now() - 10**9
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(
        trace_id=rng.randbytes(16), span_id=rng.randbytes(8), name="canary",
        start_time_unix_nano=start, end_time_unix_nano=start,
    )  # fmt: skip
    return "protobuf", "traces", request.SerializeToString(), "identity"


class Http:
    """One kept-alive connection; opened anew when the server closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, signal: str, body: bytes, media: str, encoding: str) -> int:
        for attempt in (1, 2):
            try:
                return await self._post(signal, body, media, encoding)
            except (ConnectionError, asyncio.IncompleteReadError):
                self._streams = None
                if attempt == 2:
                    raise
        raise AssertionError

    async def _post(self, signal: str, body: bytes, media: str, encoding: str) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = (
            f"POST /v1/{signal} HTTP/1.1\r\nhost: fuzz\r\ncontent-type: application/{media}\r\n"
            f"content-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        if b"connection: close" in answer:
            writer.close()
            self._streams = None
        return int(answer[9:12])


async def attack(ports: tuple[int, int], rng: random.Random, inputs: int, alive: Callable[[], bool]) -> Counter[str]:
    """Sends all inputs over some connections at once; counts answers by door and code."""
    seen: Counter[str] = Counter()
    left = iter(range(inputs))

    async def connection(channel: Any) -> None:
        http = Http(ports[0])
        for number in left:
            door, signal, body, encoding = canary(rng) if number % CANARY_EVERY == 0 else one_input(rng)
            if not alive() or seen["hangs"] > 20:
                return
            seen["inputs"] += 1
            try:
                async with asyncio.timeout(ANSWER_S):
                    if door == "grpc":
                        code = await over_grpc(channel, signal, body)
                    else:
                        media = "json" if door == "json" else "x-protobuf"
                        code = str(await http.post(signal, body, media, encoding))
            except TimeoutError:
                code = "hangs"
                seen["hangs"] += 1
                http = Http(ports[0])
            except (ConnectionError, asyncio.IncompleteReadError):
                code = "broken"
            if number % CANARY_EVERY == 0 and code == "200":
                seen["canaries"] += 1
            seen[f"{door} {code}"] += 1
            if code in ("500", "INTERNAL", "UNKNOWN", "broken"):
                seen["crashes"] += 1
                print(f"{door} {signal} {encoding}: {code}: {body[:2000].hex()}")

    async with channel_to(ports[1]) as channel:
        await asyncio.gather(*(connection(channel) for _ in range(CONNECTIONS)))
    return seen


@asynccontextmanager
async def channel_to(port: int) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel


async def over_grpc(channel: Any, signal: str, body: bytes) -> str:
    """The status of one Export."""
    try:
        await channel.unary_unary(_METHODS[signal])(body, timeout=ANSWER_S + 5)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--inputs", type=int, default=120_000)
    options = parser.parse_args()
    inputs = min(options.inputs, 4_000) if options.quick else options.inputs
    spawn = multiprocessing.get_context("spawn")
    poisoned: int | None = None
    with workspace(options.work) as work:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=serve, args=(theirs, str(work / f"fuzz-{os.getpid()}")), daemon=True)
        process.start()
        try:
            if not ours.poll(60):
                raise RuntimeError("the receiver did not start within 60 s")
            ports = ours.recv()
            started = time.monotonic()
            seen = asyncio.run(attack(ports, random.Random(options.seed), inputs, process.is_alive))
            print(f"{seen['inputs']:,} inputs in {time.monotonic() - started:.0f} s")
            for name, count in sorted(seen.items()):
                print(f"  {name:28s} {count:,}")
            died = not process.is_alive()
            if not died:
                ours.send("count")
                if not ours.poll(150):
                    raise RuntimeError("the store did not take what was accepted within 150 s")
                pipeline, receiver, stored = ours.recv()
                print(f"pipeline {pipeline}\nreceiver {receiver}\ncanaries stored {stored} of {seen['canaries']}")
                poisoned = pipeline["refused_bodies"] + pipeline["insert_failures"] + abs(seen["canaries"] - stored)
                ours.send("stop")
                process.join(20)
        finally:
            process.kill()
    figures = {
        "inputs": seen["inputs"],
        "crashes": seen["crashes"] + died,
        "hangs": seen["hangs"],
        "poisoned": poisoned,
    }
    report("fuzz", options.seed, figures)


if __name__ == "__main__":
    main()

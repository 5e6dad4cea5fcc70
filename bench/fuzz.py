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
import multiprocessing
import os
import random
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
from hostile import canary, one_input

from tailtrace.ingest.pipeline import Pipeline
from tailtrace.ingest.receiver import Counters, create_app, create_grpc_server
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import open_store

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

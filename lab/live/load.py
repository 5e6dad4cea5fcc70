"""A bounded load generator: each request at its drawn time, by a client of its own that may read slowly or leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from tailtrace.lab.clock import SECOND
from tailtrace.lab.live.wire import PATH, write_call
from tailtrace.lab.request import Request

MAX_OPEN = 512
_READ = 1 << 16
_SLOW_READ = 512


class LoadGenerator:
    """Counts how its requests ended: by HTTP status, `left`, `failed`, and `skipped` beyond the bound."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.ended: Counter[str] = Counter()
        self._open: set[asyncio.Task[None]] = set()

    async def run(self, requests: Sequence[Request], stop: asyncio.Event) -> None:
        """Send each request when its time has come, until `stop` or the last one; then let go of those still open."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        for request in requests:
            wait = started + request.arrival_ns / SECOND - loop.time()
            if wait > 0:
                try:
                    await asyncio.wait_for(stop.wait(), wait)
                except TimeoutError:
                    pass
            if stop.is_set():
                break
            if len(self._open) >= MAX_OPEN:
                self.ended["skipped"] += 1
                continue
            task = asyncio.create_task(self._call(request))
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        for task in list(self._open):
            task.cancel()

    async def _call(self, request: Request) -> None:
        try:
            patience = request.patience_ns / SECOND if request.patience_ns >= 0 else None
            async with asyncio.timeout(patience):
                self.ended[await self._exchange(request)] += 1
        except TimeoutError:
            self.ended["left"] += 1
        except OSError:
            self.ended["failed"] += 1

    async def _exchange(self, request: Request) -> str:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            body = write_call(request)
            head = f"POST {PATH} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode())
            # The body comes half a round trip after the headers, as over a real link.
            await asyncio.sleep(request.client_rtt_ns / 2 / SECOND)
            writer.write(body)
            status = ""
            pause = request.token_interval_ns / SECOND * 2
            while data := await reader.read(_SLOW_READ if pause else _READ):
                status = status or data[9:12].decode("latin-1")
                if pause:
                    await asyncio.sleep(pause)
            return status or "failed"
        finally:
            writer.close()

"""A load generator that costs little: raw HTTP/1.1 on kept connections, so that the two cores are the receiver's.

Bodies come from `bench/payload.py`; each connection sends the next as soon as the last was acknowledged (closed loop).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class LoadResult:
    """What was acknowledged, and how long the acknowledgements took."""

    bodies: int = 0
    refused: int = 0
    seconds: float = 0.0
    ack_ms: list[float] = field(default_factory=list)


class _Connection:
    def __init__(self, host: str, port: int, path: str, headers: Mapping[str, str]) -> None:
        self._address = (host, port)
        fields = {"Host": f"{host}:{port}", "Content-Type": "application/x-protobuf", **headers}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "Content-Length: "]
        self._head = "\r\n".join(lines).encode()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, body: bytes) -> int:
        """The status; reconnects when the server closed the connection between two requests."""
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(*self._address)
        reader, writer = self._reader, self._writer
        assert reader is not None
        writer.write(self._head + str(len(body)).encode() + b"\r\n\r\n" + body)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        length = 0
        for line in head.split(b"\r\n")[1:]:
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
            elif line.lower() == b"connection: close":
                writer.close()
        if length:
            await reader.readexactly(length)
        return status

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


async def send(
    port: int,
    next_body: Callable[[], bytes | None],
    *,
    seconds: float,
    connections: int = 16,
    bodies_per_s: float | None = None,
    host: str = "127.0.0.1",
    path: str = "/v1/traces",
    headers: Mapping[str, str] | None = None,
) -> LoadResult:
    """Sends until the time is over or `next_body` gives None; 503 and 429 are counted and tried again with a new body.

    `bodies_per_s` paces the whole (open loop as far as the connections allow); None sends as fast as it is answered.
    """
    result = LoadResult()
    started = time.monotonic()
    ends = started + seconds
    sent = 0

    async def worker() -> None:
        nonlocal sent
        connection = _Connection(host, port, path, headers or {})
        try:
            while (now := time.monotonic()) < ends:
                slot, sent = sent, sent + 1
                if bodies_per_s is not None:
                    await asyncio.sleep(max(0.0, started + slot / bodies_per_s - now))
                body = next_body()
                if body is None:
                    return
                began = time.perf_counter()
                status = await connection.post(body)
                if status == 200:
                    result.bodies += 1
                    result.ack_ms.append((time.perf_counter() - began) * 1e3)
                elif status in (429, 503):
                    result.refused += 1
                    await asyncio.sleep(0.1)
                else:
                    raise RuntimeError(f"the receiver answered {status}")
        finally:
            connection.close()

    await asyncio.gather(*(worker() for _ in range(connections)))
    result.seconds = time.monotonic() - started
    return result

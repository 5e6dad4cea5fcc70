"""Drives an ASGI app without a server: one call, its messages, and a client that may leave."""

from __future__ import annotations

import asyncio
from typing import Any

TRACE = "5b8efff798038103d269b633813fc60c"
CALLER = "eee19b7ec3c1b174"


def http_scope(path: str = "/v1/chat/completions", headers: dict[str, str] | None = None, method: str = "POST") -> Any:
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip


async def call(app: Any, body: bytes = b"{}", *, leave_after: int | None = None, **scope: Any) -> list[dict[str, Any]]:
    """All messages of one call. With `leave_after=n` the client is gone once n bodies have been sent."""
    sent: list[dict[str, Any]] = []
    gone = asyncio.Event()
    if leave_after == 0:
        gone.set()
    state = {"body": True}

    async def receive() -> dict[str, Any]:
        if state["body"]:
            state["body"] = False
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        bodies = sum(1 for one in sent if one["type"] == "http.response.body")
        if leave_after is not None and bodies >= leave_after:
            gone.set()
            await asyncio.sleep(0)

    await app(http_scope(**scope), receive, send)
    return sent


def sse(*payloads: str) -> list[bytes]:
    return [f"data: {payload}\n\n".encode() for payload in payloads]


def chat(text: str = "", **delta: str) -> str:
    import json

    return json.dumps(
        {"model": "m-1", "choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": None}]}
    )

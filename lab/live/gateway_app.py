"""The gateway as a server: authentication, limit, retrieval, routing, and the answer passed on as it comes."""

from __future__ import annotations

import asyncio

import httpx

from tailtrace.instrumentation import current_request, inject, request, stage
from tailtrace.instrumentation.otlp import CLIENT
from tailtrace.lab.clock import SECOND
from tailtrace.lab.live.wire import PATH, Message, Receive, Send, answer, read_body, read_call, until_left


class GatewayApp:
    """`backends` are the base addresses of each service's replicas; the least loaded one gets the next request."""

    def __init__(self, backends: dict[str, list[str]]) -> None:
        self._backends = backends
        self._load = {address: 0 for addresses in backends.values() for address in addresses}
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        with stage("parse"):
            _, drawn = read_call(body)
        if (record := current_request()) is not None:
            record.set("tenant", f"tenant-{drawn.tenant}")
            record.set("client_rtt_ns", drawn.client_rtt_ns)
        with stage("auth"):
            await asyncio.sleep(drawn.auth_ns / SECOND)
        if drawn.refused == 401:
            return await answer(send, 401, {"error": {"code": "unauthorized", "message": "key is not valid"}})
        with stage("rate_limit"):
            await asyncio.sleep(drawn.rate_limit_ns / SECOND)
        if drawn.refused:
            return await answer(send, 429, {"error": {"code": "rate_limited", "message": "try again later"}})
        if drawn.external_ns:
            with request("POST vector-store", kind=CLIENT):
                await asyncio.sleep(drawn.external_ns / SECOND)
        with stage("route"):
            address = min(self._backends[drawn.service], key=self._load.__getitem__)
        self._load[address] += 1
        try:
            await self._forward(address, drawn.service, body, receive, send)
        finally:
            self._load[address] -= 1

    async def _forward(self, address: str, service: str, body: bytes, receive: Receive, send: Send) -> None:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=120.0, limits=httpx.Limits(max_connections=None))
        left = asyncio.ensure_future(until_left(receive))
        try:
            with request(f"POST {service}", kind=CLIENT):
                headers = {"content-type": "application/json", **inject()}
                async with self._client.stream("POST", address + PATH, content=body, headers=headers) as response:
                    kept = [(b"content-type", response.headers["content-type"].encode())]
                    await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
                    async for chunk in response.aiter_raw():
                        if left.done():
                            return
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except httpx.HTTPError as error:
            await answer(send, 502, {"error": {"code": "replica_lost", "message": type(error).__name__}})
        finally:
            left.cancel()

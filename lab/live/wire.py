"""What the load generator, the gateway and the engine say to each other over HTTP."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, MutableMapping
from types import SimpleNamespace
from typing import Any

from tailtrace.lab.request import Request

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Message, Receive, Send], Awaitable[None]]

PATH = "/v1/chat/completions"
WORD = "token"
TOKENS_PER_CHUNK = 4

_DRAWN = tuple(
    field.name
    for field in dataclasses.fields(Request)
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
)


def write_call(request: Request) -> bytes:
    """The body of a chat call: a prompt of the drawn length, and beside it what was drawn for the request."""
    drawn = {name: getattr(request, name) for name in _DRAWN}
    prompt = " ".join([WORD] * request.input_tokens)
    call = {
        "model": "lab", "stream": request.streaming, "max_tokens": request.output_tokens,
        "messages": [{"role": "user", "content": prompt}], "lab": drawn,
    }  # fmt: skip
    return json.dumps(call).encode()


def read_call(body: bytes) -> tuple[str, Request]:
    """(prompt, request) of a chat call."""
    call = json.loads(body)
    return str(call["messages"][0]["content"]), Request(**call["lab"])


_ROUTE = SimpleNamespace(path=PATH)


class ClientLeft(Exception):
    """The client went away before its request was whole."""


async def read_body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def until_left(receive: Receive) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send: Send, status: int, document: dict[str, Any]) -> None:
    """A whole JSON answer."""
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def application(handler: Handler) -> Handler:
    """An ASGI app of one handler: answers the lifespan protocol, 404 beside `PATH`."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                kind = message["type"].removeprefix("lifespan.")
                await send({"type": f"lifespan.{kind}.complete"})
                if kind == "shutdown":
                    return
        if scope["path"] != PATH:
            return await answer(send, 404, {"error": {"code": "not_found", "message": scope["path"]}})
        scope["route"] = _ROUTE  # as a router would say it
        try:
            await handler(scope, receive, send)
        except ClientLeft:
            pass

    return app

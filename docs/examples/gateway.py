"""A streaming service in one file: `uvicorn gateway:app`, then `curl -N -X POST localhost:8000/v1/chat/completions`.

Shows every place a request spends time: a key check, a queue, a worker that generates, and the stream to the client.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator

from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse

from tailtrace.instrumentation import instrument, joined, stage, wrap_gateway, wrap_scheduler, wrap_tokenizer

instrument(service_name="example-gateway", resource={"model": "toy-1b"})


class Tokenizer:
    def encode(self, text: str) -> list[int]:
        time.sleep(0.002)
        return [ord(letter) for letter in text]


tokenizer = wrap_tokenizer(Tokenizer())
waiting: asyncio.Queue[tuple[list[int], asyncio.Queue[str | None]]] = wrap_scheduler(asyncio.Queue())
service = FastAPI()
workers: set[asyncio.Task[None]] = set()


async def worker() -> None:
    """Takes one request at a time; what it does belongs to the request that queued the item."""
    while True:
        item = await waiting.get()
        tokens, answer = item
        with joined(waiting.scope_of(item)):  # type: ignore[attr-defined]
            with stage("prefill"):
                await asyncio.sleep(0.01 + len(tokens) * 0.0005)
            with stage("decode"):
                for letter in "Hello from a toy model.":
                    await answer.put(letter)
                    await asyncio.sleep(0.005)
        await answer.put(None)


async def verify_key() -> None:
    await asyncio.sleep(0.003)


@service.post("/v1/chat/completions", dependencies=[Depends(verify_key)])
async def complete() -> StreamingResponse:
    if not workers:
        workers.add(asyncio.create_task(worker()))
    answer: asyncio.Queue[str | None] = asyncio.Queue()
    await waiting.put((tokenizer.encode("Say hello"), answer))

    async def frames() -> AsyncIterator[str]:
        count = 0
        while (letter := await answer.get()) is not None:
            count += 1
            yield f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': letter}}]})}\n\n"
        usage = {"prompt_tokens": 9, "completion_tokens": count}
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(frames(), media_type="text/event-stream")


app = wrap_gateway(service)

"""One replica of a language model as a server: a real tokenizer pool, the lab's engine on the real clock."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from tailtrace.instrumentation import clock, current_request, runtime, stage, stream
from tailtrace.lab.clock import RealClock
from tailtrace.lab.constants import Constants
from tailtrace.lab.faults import Faults
from tailtrace.lab.live.gpu_readings import GpuReadings
from tailtrace.lab.live.wire import (
    TOKENS_PER_CHUNK,
    WORD,
    Message,
    Receive,
    Send,
    answer,
    read_body,
    read_call,
    until_left,
)
from tailtrace.lab.request import Request
from tailtrace.lab.scenario import Scenario
from tailtrace.lab.service.engine import Engine, Stretch
from tailtrace.lab.service.runner import Runner

_TOKEN = re.compile(r"\w+|[^\w\s]")
_SSE = [(b"content-type", b"text/event-stream")]


class EngineApp:
    """Faults act for real: a slow tokenizer burns CPU on one thread, a blocked loop is a blocked loop."""

    def __init__(self, scenario: Scenario, service: str, replica: int, seed: int, gpus: list[str]) -> None:
        self._scenario, self._service, self._replica, self._seed = scenario, scenario.service(service), replica, seed
        self._faults = Faults(scenario, int(scenario.hours * 3600 * 1e9))
        self._constants = Constants.draw(seed, scenario.fleet.noise)
        self._pool = ThreadPoolExecutor(self._service.tokenizer_threads, "tokenizer")
        self._hot_pool = ThreadPoolExecutor(1, "tokenizer-hot")
        self._tokens: dict[int, asyncio.Queue[int]] = {}
        self._clock: RealClock
        self._engine: Engine | None = None
        self._gpus = gpus
        self._readings: GpuReadings | None = None
        self._telling: asyncio.Task[None] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        engine = self._engine or self._start()
        body = await read_body(receive)
        with stage("parse"):
            prompt, request = read_call(body)
        with stage("template"):
            prompt = f"<|user|>\n{prompt}\n<|assistant|>\n"
        with stage("tokenize"):
            await self._tokenize(prompt)
        with stage("engine_submit"):
            blocked_ms = self._faults.value("submit_ms", self._clock.now_ns(), self._service.name, self._replica)
            if blocked_ms:
                time.sleep(blocked_ms / 1000)  # the fault: nothing else in this loop runs meanwhile
            self._tokens[request.number] = asyncio.Queue()
            engine.add(request)
        left = asyncio.ensure_future(until_left(receive))
        try:
            await self._generate(request, send, left)
        finally:
            left.cancel()
            del self._tokens[request.number]
            if not request.outcome:
                engine.abort(request)
            self._mark(request)

    def _start(self) -> Engine:
        self._clock = RealClock()
        runner = Runner(self._service, self._replica, self._constants, self._faults, self._seed)
        self._engine = Engine(
            self._service, self._replica, self._clock, runner, self._faults, self._finished, self._stepped
        )
        if runtime.active is not None:
            self._readings = GpuReadings(
                self._scenario, self._service, self._replica, self._gpus, self._faults, self._clock, clock.anchor_ns(),
                runtime.active.metrics.put,
            )  # fmt: skip
            self._telling = asyncio.create_task(self._readings.tell())
        return self._engine

    async def _tokenize(self, prompt: str) -> None:
        now, name = self._clock.now_ns(), self._service.name
        rounds = int(self._faults.value("tokenize_time", now, name, self._replica))
        hot = self._faults.value("tokenizer_threads", now, name, self._replica) < 1.0
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._hot_pool if hot else self._pool, tokenize, prompt, rounds)

    async def _generate(self, request: Request, send: Send, left: asyncio.Future[None]) -> None:
        usage = {"prompt_tokens": request.input_tokens, "completion_tokens": request.output_tokens}
        if not request.streaming:
            async for _ in stream(self._produced(request, left), accepts=bool):
                pass
            if not left.done():
                text = f"{WORD} " * request.output_tokens
                await answer(send, 200, {"choices": [{"message": {"content": text}}], "usage": usage})
            return
        await send({"type": "http.response.start", "status": 200, "headers": _SSE})
        async for count in stream(self._produced(request, left), accepts=bool):
            chunk = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (f"{WORD} " * count).encode()
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        end = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()
        await send({"type": "http.response.body", "body": end})

    async def _produced(self, request: Request, left: asyncio.Future[None]) -> AsyncIterator[int]:
        """How many tokens came, time and again until all did; the first alone, later ones a few at a time."""
        tokens, pending, first = self._tokens[request.number], 0, True
        produced = 0
        while produced < request.output_tokens:
            get = asyncio.ensure_future(tokens.get())
            await asyncio.wait((get, left), return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                get.cancel()
                return
            pending += get.result()
            produced += get.result()
            if first or pending >= TOKENS_PER_CHUNK or produced >= request.output_tokens:
                yield pending
                pending, first = 0, False

    def _stepped(self, replica: int, stretch: Stretch) -> None:
        if self._readings is not None:
            self._readings.record(replica, stretch)
        for sequence in stretch.batch.decodes:
            self._push(sequence.request.number, stretch.steps)
        for sequence, tokens in stretch.batch.prefill:
            if sequence.computed + tokens >= sequence.prompt:
                self._push(sequence.request.number, 1)

    def _push(self, number: int, count: int) -> None:
        queue = self._tokens.get(number)
        if queue is not None:
            queue.put_nowait(count)

    @staticmethod
    def _finished(request: Request) -> None:
        request.outcome = "ok"

    def _mark(self, request: Request) -> None:
        """Give the request's record what the scheduler and the runner know of it."""
        record = current_request()
        if record is None:
            return
        start, now = self._clock.start_ns, self._clock.now_ns()
        record.set("engine_request_id", f"chatcmpl-{request.number}")
        scheduled, first = request.scheduled_ns, request.first_token_ns
        record.mark("queue", start + request.submitted_ns, start + (scheduled if scheduled >= 0 else now))
        if scheduled >= 0:
            record.mark("prefill", start + scheduled, start + (first if first >= 0 else now))
        for begin, end in request.preemptions:
            record.mark("preempted", start + begin, start + end)


def tokenize(text: str, rounds: int) -> int:
    """Count the tokens of a text, `rounds` times over."""
    return sum(len(_TOKEN.findall(text)) for _ in range(max(1, rounds))) // max(1, rounds)

"""wrap_client, wrap_tokenizer, wrap_scheduler, wrap_model_runner, dependencies, context, and the span processor."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Annotated, Any

import httpx
import pytest
import requests
from asgi_calls import CALLER, TRACE, call, chat, sse
from fastapi import Depends, FastAPI, HTTPException
from opentelemetry.sdk.trace import TracerProvider
from receiver import receiver

from tailtrace.errors import ConfigError
from tailtrace.instrumentation import (
    bind,
    extract,
    inject,
    joined,
    mark,
    request,
    stage,
    stage_from,
    staged,
    wrap_client,
    wrap_executor,
    wrap_gateway,
    wrap_model_runner,
    wrap_scheduler,
    wrap_tokenizer,
)
from tailtrace.instrumentation.dependencies import stage_of_name
from tailtrace.instrumentation.otlp import SpanData
from tailtrace.instrumentation.processor import TailtraceSpanProcessor
from tailtrace.instrumentation.testing import FakeClock, captured

pytestmark = pytest.mark.anyio


def named(spans: list[SpanData], name: str) -> SpanData:
    found = [span for span in spans if span.name == name]
    assert len(found) == 1, [span.name for span in spans]
    return found[0]


def length_ms(span: SpanData) -> float:
    return (span.end_unix_ns - span.start_unix_ns) / 1e6


# Clients


def answer(request: httpx.Request) -> httpx.Response:
    assert request.headers["traceparent"].startswith("00-")
    if request.url.path == "/stream":
        content = b"".join(sse(chat("", role="assistant"), chat("a"), chat("b")))
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=httpx.ByteStream(content))
    return httpx.Response(429 if request.url.path == "/limit" else 200, json={})


def test_httpx_calls_are_client_requests_that_the_server_can_join() -> None:
    with captured() as spans, request("outer"):
        client = wrap_client(httpx.Client(transport=httpx.MockTransport(answer)))
        assert wrap_client(client) is client
        client.get("http://up/x")
        client.get("http://up/limit")
        with client.stream("GET", "http://up/stream") as response:
            list(response.iter_lines())
        with client.stream("GET", "http://up/stream"):
            pass
        found = [span for span in spans() if span.name == "GET up"]
    assert [span.attributes["tailtrace.outcome"] for span in found] == ["ok", "rejected", "ok", "cancelled"]
    assert {span.kind for span in found} == {3}
    assert found[2].attributes["tailtrace.ttft_ns"] > 0
    assert all(span.parent_span_id for span in found)


async def test_async_httpx() -> None:
    with captured() as spans:
        client = wrap_client(httpx.AsyncClient(transport=httpx.MockTransport(answer)))
        await client.get("http://up/x")
        async with client.stream("GET", "http://up/stream") as response:
            async for _ in response.aiter_lines():
                pass
        assert [span.attributes["tailtrace.outcome"] for span in spans()] == ["ok", "ok"]


def test_requests_sessions() -> None:
    with receiver((503, {})) as sink, captured() as spans:
        session = wrap_client(requests.Session())
        session.post(sink.endpoint, data=b"x")
        session.post(sink.endpoint, data=b"x")
        found = spans()
    assert [span.attributes["tailtrace.outcome"] for span in found] == ["rejected", "ok"]
    assert sink.headers[1]["traceparent"] == f"00-{found[1].trace_id.hex()}-{found[1].span_id.hex()}-01"


def test_a_refused_connection_is_an_error_of_the_call() -> None:
    with captured() as spans, pytest.raises(requests.ConnectionError):
        wrap_client(requests.Session()).get("http://127.0.0.1:1/")
    assert spans()[0].attributes["tailtrace.outcome"] == "error"


def test_what_sends_nothing_is_refused_with_advice() -> None:
    with pytest.raises(ConfigError, match="httpx"):
        wrap_client(object())


# Tokenizers


class Tokenizer:
    vocabulary = 7

    def __call__(self, text: str) -> list[int]:
        return self.encode(text)

    def encode(self, text: str) -> list[int]:
        clock.advance_ms(4)
        return [len(text)]

    def decode(self, tokens: list[int]) -> str:
        clock.advance_ms(tokens[0])
        return "x"


class Slotted:
    __slots__ = ()

    def encode(self, text: str) -> int:
        return len(text)


clock: FakeClock


def test_a_tokenizer_is_timed_once_and_stays_what_it_is() -> None:
    global clock
    with FakeClock() as clock, captured() as spans:
        tokenizer = wrap_tokenizer(Tokenizer())
        assert wrap_tokenizer(tokenizer) is tokenizer
        assert isinstance(tokenizer, Tokenizer)
        with request("r"):
            assert tokenizer("abc") == [3]
            tokenizer.decode([2])
            tokenizer.decode([0])
        tokenizer("outside of a request")
        found = spans()
    assert length_ms(named(found, "tokenize")) == 4
    assert length_ms(named(found, "detokenize")) == 2
    assert len(found) == 3


def test_a_type_that_cannot_be_changed_gets_a_stand_in() -> None:
    with captured() as spans:
        tokenizer = wrap_tokenizer(Slotted())
        with request("r"):
            assert tokenizer.encode("abc") == 3
        named(spans(), "tokenize")


# Schedulers


def test_a_queue_gives_the_wait_to_the_request_that_put() -> None:
    with FakeClock() as now, captured() as spans:
        waiting: Any = wrap_scheduler(queue.Queue())
        with request("r"):
            waiting.put(item := object())
        now.advance_ms(30)

        def worker() -> None:
            taken = waiting.get()
            with joined(waiting.scope_of(taken)), stage("forward"):
                now.advance_ms(5)

        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
        found = spans()
        assert item is not None
    outer = named(found, "r")
    assert length_ms(named(found, "queue")) == 30
    assert length_ms(named(found, "forward")) == 5
    assert {named(found, name).parent_span_id for name in ("queue", "forward")} == {outer.span_id}


async def test_an_asyncio_queue() -> None:
    with FakeClock() as now, captured() as spans:
        waiting: Any = wrap_scheduler(asyncio.Queue())
        with request("r"):
            await waiting.put("item")
            now.advance_ms(7)
            await waiting.get()
        assert length_ms(named(spans(), "queue")) == 7


def test_a_scheduler_gives_queue_preemption_and_steps() -> None:
    class Scheduler:
        def __init__(self) -> None:
            self.next: list[str] = []

        def add_request(self, name: str) -> None:
            pass

        def schedule(self) -> list[str]:
            return self.next

        def finish_requests(self, names: list[str]) -> None:
            pass

    with FakeClock() as now, captured() as spans:
        scheduler = wrap_scheduler(Scheduler())
        with request("r"):
            scheduler.add_request("a")
            for batch, wait_ms in ((["a"], 20), ([], 5), (["a"], 9), (["a"], 1)):
                now.advance_ms(wait_ms)
                scheduler.next = batch
                scheduler.schedule()
            scheduler.finish_requests(["a"])
        found = spans()
    assert length_ms(named(found, "queue")) == 20
    assert length_ms(named(found, "preempted")) == 9
    steps = [span for span in found if span.name == "step"]
    assert [span.attributes["tailtrace.running"] for span in steps] == [1, 0, 1, 1]
    assert [span.attributes["tailtrace.waiting"] for span in steps] == [0, 1, 0, 0]
    assert steps[1].attributes["tailtrace.preempted"] == "a"


def test_neither_a_queue_nor_a_scheduler_is_refused_with_advice() -> None:
    with pytest.raises(ConfigError, match="add_request"):
        wrap_scheduler(object())


# Model runners


def test_generate_gives_prefill_and_decode_through_a_streamer() -> None:
    class Model:
        def generate(self, ids: list[int], streamer: Any = None, num_beams: int = 1) -> str:
            if streamer is not None:
                streamer.put(ids)
            for _ in range(3):
                now.advance_ms(10)
                self.forward()
                if streamer is not None:
                    streamer.put(1)
            if streamer is not None:
                streamer.end()
            return "done"

        def forward(self) -> None:
            pass

    class Mine:
        def __init__(self) -> None:
            self.got: list[Any] = []

        def put(self, value: Any) -> None:
            self.got.append(value)

        def end(self) -> None:
            self.got.append("end")

    with FakeClock() as now, captured() as spans:
        model = wrap_model_runner(Model())
        mine = Mine()
        with request("r"):
            assert model.generate([1, 2], streamer=mine) == "done"
        with request("beams"):
            model.generate([1, 2], num_beams=4)
        found = [span for span in spans() if span.name != "step"]
    assert length_ms(named(found, "prefill")) == 10
    assert length_ms(named(found, "decode")) == 20
    assert length_ms(named(found, "forward")) == 30
    assert mine.got == [[1, 2], 1, 1, 1, "end"]
    told = {span.name: span.attributes for span in found if span.name in {"r", "beams"}}
    assert told["r"]["gen_ai.usage.input_tokens"] == 2
    assert told["r"]["gen_ai.usage.output_tokens"] == 3
    assert told["r"]["tailtrace.tokens_source"] == "engine"
    assert "gen_ai.usage.output_tokens" not in told["beams"]


@pytest.mark.parametrize("prompt", [object(), None, 5])
def test_a_prompt_that_cannot_be_counted_hurts_nobody(prompt: Any) -> None:
    class Model:
        def generate(self, ids: Any, streamer: Any = None) -> str:
            for value in (ids, 1, 2):
                now.advance_ms(10)
                streamer.put(value)
            return "done"

    with FakeClock() as now, captured() as spans:
        with request("r"):
            assert wrap_model_runner(Model()).generate(prompt) == "done"
        found = spans()
    assert "gen_ai.usage.input_tokens" not in named(found, "r").attributes
    # Whatever stands for the prompt is no token: both tokens after it are marked.
    assert length_ms(named(found, "decode")) == 10


def test_a_callable_gives_forward_and_a_step() -> None:
    def infer(x: int) -> int:
        now.advance_ms(6)
        return x + 1

    with FakeClock() as now, captured() as spans:
        watched = wrap_model_runner(infer)
        with request("r"):
            assert watched(1) == 2
        found = spans()
    assert length_ms(named(found, "forward")) == 6
    assert named(found, "step").scope == "tailtrace.steps"  # type: ignore[attr-defined]


# Dependencies and middleware


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("verify_api_key", "auth"), ("JWTBearer", "auth"), ("RateLimitMiddleware", "rate_limit"),
        ("check_quota", "rate_limit"), ("get_tokenizer", None), ("monkey", None), ("CORSMiddleware", None),
    ],
)  # fmt: skip
def test_names_speak_of_stages(name: str, expected: str | None) -> None:
    assert stage_of_name(name) == expected


class RateLimitMiddleware:
    def __init__(self, app: Any, wait_ms: int) -> None:
        self.app = app
        self.wait_ms = wait_ms

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        clock.advance_ms(self.wait_ms)
        await self.app(scope, receive, send)


async def verify_api_key() -> str:
    clock.advance_ms(8)
    return "alice"


def load_profile(user: Annotated[str, Depends(verify_api_key)]) -> str:
    clock.advance_ms(2)
    return user.upper()


async def refuse() -> str:
    raise HTTPException(401)


async def test_dependencies_and_middleware_are_timed_and_overrides_still_work() -> None:
    global clock
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, wait_ms=3)

    @app.get("/who/{id}")
    async def who(
        user: Annotated[str, Depends(verify_api_key)], profile: Annotated[str, Depends(load_profile)]
    ) -> dict[str, str]:
        return {"user": user, "profile": profile}

    with FakeClock() as clock, captured() as spans:
        wrapped = wrap_gateway(app, stages={"cache_lookup": load_profile})
        sent = await call(wrapped, path="/who/5", method="GET")
        found = list(spans())
        app.dependency_overrides[verify_api_key] = refuse
        refused = await call(wrapped, path="/who/5", method="GET")
    assert sent[1]["body"] == b'{"user":"alice","profile":"ALICE"}'
    assert length_ms(named(found, "auth")) == 8
    assert length_ms(named(found, "cache_lookup")) == 2
    assert length_ms(named(found, "rate_limit")) == 3
    assert named(found, "GET /who/{id}").attributes["tailtrace.route"] == "/who/{id}"
    assert refused[0]["status"] == 401


# Context


def test_headers_go_out_and_come_in() -> None:
    with captured() as spans:
        with request("a", headers={"Traceparent": f"00-{TRACE}-{CALLER}-01"}):
            headers = inject()
        with joined(headers), stage("forward"):
            pass
        found = spans()
    assert headers["traceparent"] == f"00-{TRACE}-{named(found, 'a').span_id.hex()}-01"
    assert named(found, "forward").parent_span_id == named(found, "a").span_id
    assert named(found, "forward").trace_id.hex() == TRACE


@pytest.mark.parametrize(
    "text",
    ["", "x", f"00-{TRACE}-{CALLER}", f"ff-{TRACE}-{CALLER}-01", f"00-{'0' * 32}-{CALLER}-01",
     f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{CALLER}-01", f"00-{TRACE}-{CALLER}-01-more"],
)  # fmt: skip
def test_malformed_callers_are_nobody(text: str) -> None:
    assert extract({"traceparent": text}) is None


def test_a_pool_of_threads_keeps_the_parent_that_has_ended() -> None:
    def work(_: int) -> None:
        with stage("forward"):
            pass

    with captured() as spans:
        with ThreadPoolExecutor(1) as pool:
            with request("r"):
                list(wrap_executor(pool).map(work, range(5)))
                later = bind(work)
            for index in range(5):
                pool.submit(later, index)
        found = spans()
    assert {span.trace_id for span in found} == {named(found, "r").trace_id}
    assert len(found) == 11


def report() -> str:
    return str(inject()["traceparent"])


def test_a_pool_of_processes_gets_the_caller() -> None:
    with captured(), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, request("r") as record:
        assert wrap_executor(pool).submit(report).result(60) == f"00-{record.trace_id.hex()}-{record.span_id.hex()}-01"


def test_a_wait_that_begins_and_ends_in_different_places() -> None:
    with FakeClock() as now, captured() as spans:
        with request("r") as record:
            began = mark()
            now.advance_ms(12)
        stage_from(began, "queue", scope=record)
        assert length_ms(named(spans(), "queue")) == 12


def test_decorated_functions_generators_and_coroutines() -> None:
    @staged
    def rerank() -> int:
        return 1

    @staged("guardrail")
    async def check() -> int:
        return 2

    @staged("postprocess")
    def pieces() -> Iterator[int]:
        yield 3

    with captured() as spans:
        with request("r"):
            assert (rerank(), asyncio.run(check()), list(pieces())) == (1, 2, [3])
        found = spans()
    assert named(found, "rerank").attributes["tailtrace.stage"] == "custom"
    assert {named(found, name).parent_span_id for name in ("guardrail", "postprocess")} == {named(found, "r").span_id}


def test_a_stage_without_a_request_is_a_span_of_its_own() -> None:
    with captured() as spans:
        with stage("model_load"):
            pass
        assert named(spans(), "model_load").parent_span_id == b""


def test_marks_hold_when_the_wall_clock_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    with captured() as spans:
        with request("r"):
            monkeypatch.setattr(time, "time_ns", lambda: 0)
            monkeypatch.setattr(time, "time", lambda: 0.0)
        span = named(spans(), "r")
    assert span.end_unix_ns >= span.start_unix_ns > 1_600_000_000_000_000_000


# OpenTelemetry


def test_an_existing_provider_s_spans_go_through_our_exporter() -> None:
    provider = TracerProvider()
    provider.add_span_processor(TailtraceSpanProcessor())
    tracer = provider.get_tracer("their.library")
    with captured() as spans:
        with request("ours"), tracer.start_as_current_span("theirs") as theirs:
            theirs.set_attribute("k", 1)
            with stage("ours again"):
                pass
        found = spans()
    theirs_span = named(found, "theirs")
    assert theirs_span.attributes == {"k": 1}
    assert theirs_span.scope == "their.library"  # type: ignore[attr-defined]
    assert theirs_span.parent_span_id == named(found, "ours").span_id
    assert theirs_span.trace_id == named(found, "ours").trace_id


async def test_fastapi_s_own_spans_become_children_and_not_a_second_request() -> None:
    provider = TracerProvider()
    provider.add_span_processor(TailtraceSpanProcessor())
    from opentelemetry import propagate

    async def app(scope: Any, receive: Any, send: Any) -> None:
        carrier = {name.decode(): value.decode() for name, value in scope["headers"]}
        with provider.get_tracer("fastapi").start_as_current_span("GET /", context=propagate.extract(carrier)):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    with captured() as spans:
        await call(wrap_gateway(app))
        found = spans()
    inner = named(found, "GET /")
    assert [span for span in found if span.attributes.get("tailtrace.request")] == [named(found, "POST")]
    assert inner.parent_span_id == named(found, "POST").span_id

"""wrap_gateway: one request span, the client's view of the answer, and nothing broken around it."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from typing import Any

import pytest
from asgi_calls import CALLER, TRACE, call, chat, sse
from opentelemetry import trace
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from tailtrace.instrumentation import current_request, stage, wrap_gateway
from tailtrace.instrumentation.otlp import SpanData
from tailtrace.instrumentation.testing import FakeClock, captured

pytestmark = pytest.mark.anyio


def one(spans: list[SpanData]) -> SpanData:
    requests = [span for span in spans if span.attributes.get("tailtrace.request")]
    assert len(requests) == 1
    return requests[0]


def streaming(bodies: list[bytes], now: FakeClock, gap_ms: float = 10, content_type: str = "text/event-stream") -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type.encode())]}
        )
        for body in bodies:
            now.advance_ms(gap_ms)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return wrap_gateway(app)


async def test_first_token_is_not_the_role_an_empty_delta_or_a_comment() -> None:
    bodies = [
        *sse(chat("", role="assistant")), b": keep-alive\n\n", *sse(chat("")), *sse(chat("Hel"), chat("lo")),
        *sse('{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'),
        *sse('{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}', "[DONE]"),
    ]  # fmt: skip
    with FakeClock() as now, captured() as spans:
        await call(streaming(bodies, now))
        span = one(spans())
    assert span.attributes["tailtrace.ttft_ns"] == 40_000_000
    assert span.attributes["tailtrace.ttft_answer_ns"] == 40_000_000
    assert span.attributes["tailtrace.last_token_ns"] == 50_000_000
    assert span.attributes["tailtrace.gaps"] == "814:1"
    assert span.attributes["gen_ai.usage.input_tokens"] == 7
    assert span.attributes["gen_ai.usage.output_tokens"] == 2
    assert span.attributes["tailtrace.tokens_source"] == "usage"
    assert span.attributes["gen_ai.response.model"] == "m-1"
    assert span.attributes["tailtrace.streaming"] is True
    assert span.attributes["tailtrace.outcome"] == "ok"
    assert span.end_unix_ns - span.start_unix_ns == 80_000_000


async def test_reasoning_is_the_first_token_and_content_the_first_of_the_answer() -> None:
    bodies = sse(chat(reasoning_content="hm"), chat(reasoning_content="so"), chat("Yes"), chat("."))
    with FakeClock() as now, captured() as spans:
        await call(streaming(bodies, now))
        attributes = one(spans()).attributes
    assert attributes["tailtrace.ttft_ns"] == 10_000_000
    assert attributes["tailtrace.ttft_answer_ns"] == 30_000_000
    assert attributes["tailtrace.last_token_ns"] == 40_000_000


async def test_a_stream_that_never_gave_a_token_has_no_first_token() -> None:
    with FakeClock() as now, captured() as spans:
        await call(streaming(sse(chat("", role="assistant"), "[DONE]"), now))
        assert "tailtrace.ttft_ns" not in one(spans()).attributes


async def test_plain_text_chunks_are_tokens_and_downloads_are_not() -> None:
    with FakeClock() as now, captured() as spans:
        await call(streaming([b"a", b"b"], now, content_type="text/plain; charset=utf-8"))
        await call(streaming([b"a", b"b"], now, content_type="application/octet-stream"))
        text, download = [span for span in spans() if span.attributes.get("tailtrace.request")]
    assert text.attributes["tailtrace.ttft_ns"] == 10_000_000
    assert "tailtrace.ttft_ns" not in download.attributes
    assert download.attributes["tailtrace.streaming"] is False
    assert download.attributes["http.response.body.size"] == 2


async def test_frames_cut_anywhere_are_read() -> None:
    whole = b"".join(sse(chat("", role="assistant"), chat("Hi")))
    with FakeClock() as now, captured() as spans:
        await call(streaming([whole[:20], whole[20:130], whole[130:]], now))
        assert one(spans()).attributes["tailtrace.ttft_ns"] == 30_000_000


async def test_stalls_are_the_long_gaps_with_their_place() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for index in range(20):
            now.advance_ms(500 if index == 10 else 10)
            await send({"type": "http.response.body", "body": sse(chat("x"))[0], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    with FakeClock() as now, captured() as spans:
        await call(wrap_gateway(app))
        assert one(spans()).attributes["tailtrace.stalls"] == "100000000:500000000"


async def test_the_body_s_arrival_is_net_in() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    parts = [b"x" * 1000, b"y" * 500]

    async def receive() -> dict[str, Any]:
        now.advance_ms(3)
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        now.advance_ms(1)

    from asgi_calls import http_scope

    with FakeClock() as now, captured() as spans:
        await wrap_gateway(app)(http_scope(), receive, send)
        found = {span.name: span for span in spans()}
    assert found["net_in"].end_unix_ns - found["net_in"].start_unix_ns == 6_000_000
    assert found["stream_out"].end_unix_ns - found["stream_out"].start_unix_ns == 2_000_000
    request = one(list(found.values()))
    assert request.attributes["http.request.body.size"] == 1500
    assert request.attributes["http.response.body.size"] == 2
    assert found["net_in"].parent_span_id == request.span_id


async def test_a_blocked_send_is_stream_out() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(3):
            await send({"type": "http.response.body", "body": sse(chat("x"))[0], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    class Cycle:
        """As uvicorn's: says whether the next send will wait."""

        def __init__(self) -> None:
            self.flow = self
            self.write_paused = False
            self.disconnected = False
            self.count = 0

        async def send(self, message: Any) -> None:
            if self.write_paused:
                now.advance_ms(40)
            self.count += 1
            self.write_paused = self.count == 3

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    from asgi_calls import http_scope

    with FakeClock() as now, captured() as spans:
        await wrap_gateway(app)(http_scope(), receive, Cycle().send)
        blocked = [span for span in spans() if span.name == "stream_out"]
    assert [span.end_unix_ns - span.start_unix_ns for span in blocked] == [40_000_000]


async def test_traceparent_is_joined_and_rewritten_for_what_is_inside() -> None:
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen["headers"] = [value.decode() for name, value in scope["headers"] if name == b"traceparent"]
        seen["otel"] = trace.get_current_span().get_span_context()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with captured() as spans:
        await call(wrap_gateway(app), headers={"traceparent": f"00-{TRACE}-{CALLER}-01"})
        span = one(spans())
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, CALLER)
    assert seen["headers"] == [f"00-{TRACE}-{span.span_id.hex()}-01"]
    assert f"{seen['otel'].trace_id:032x}-{seen['otel'].span_id:016x}" == f"{TRACE}-{span.span_id.hex()}"
    assert not trace.get_current_span().get_span_context().is_valid


async def test_an_unsampled_caller_is_respected() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with captured() as spans:
        await call(wrap_gateway(app), headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
        assert spans() == []


async def test_one_in_n_is_kept_with_its_weight() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(value.decode() for name, value in scope["headers"] if name == b"tracestate")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with captured(sample=4, seed=1) as spans:
        wrapped = wrap_gateway(app)
        for _ in range(200):
            await call(wrapped)
        kept = [span for span in spans() if span.attributes.get("tailtrace.request")]
    assert len(kept) == 51
    assert {span.attributes["tailtrace.sample_weight"] for span in kept} == {4}
    assert set(seen) == {"tailtrace=4"}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "ok"),
        (404, "error"),
        (401, "rejected"),
        (429, "rejected"),
        (503, "rejected"),
        (504, "timeout"),
        (500, "error"),
    ],
)
async def test_status_becomes_an_outcome(status: int, outcome: str) -> None:
    async def endpoint(request: Any) -> JSONResponse:
        return JSONResponse({}, status_code=status)

    with captured() as spans:
        await call(wrap_gateway(Starlette(routes=[Route("/a/{id}", endpoint)])), path="/a/5", method="GET")
        span = one(spans())
    assert span.attributes["tailtrace.outcome"] == outcome
    assert span.attributes["http.response.status_code"] == status
    assert (span.name, span.attributes["tailtrace.route"]) == ("GET /a/{id}", "/a/{id}")


async def test_an_exception_is_an_error_and_reaches_the_server() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("secret prompt")

    with captured() as spans:
        with pytest.raises(KeyError):
            await call(wrap_gateway(app))
        span = one(spans())
    assert (span.attributes["tailtrace.outcome"], span.status_code, span.status_message) == ("error", 2, "KeyError")
    assert "secret" not in repr(span)


async def test_a_failure_in_mid_stream_is_an_error_with_its_tokens() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(2):
            now.advance_ms(10)
            await send({"type": "http.response.body", "body": sse(chat("x"))[0], "more_body": True})
        raise RuntimeError

    with FakeClock() as now, captured() as spans:
        with pytest.raises(RuntimeError):
            await call(wrap_gateway(app))
        attributes = one(spans()).attributes
    assert attributes["tailtrace.outcome"] == "error"
    assert (attributes["tailtrace.ttft_ns"], attributes["tailtrace.last_token_ns"]) == (10_000_000, 20_000_000)


async def test_a_client_that_leaves_in_mid_stream_is_cancelled() -> None:
    async def endpoint(request: Any) -> StreamingResponse:
        async def tokens() -> Any:
            for _ in range(1000):
                yield sse(chat("x"))[0]
                await asyncio.sleep(0)

        return StreamingResponse(tokens(), media_type="text/event-stream")

    with captured() as spans:
        await call(wrap_gateway(Starlette(routes=[Route("/", endpoint)])), path="/", method="GET", leave_after=2)
        span = one(spans())
    assert span.attributes["tailtrace.outcome"] == "cancelled"
    assert span.status_code == 0
    assert span.attributes["tailtrace.ttft_ns"] > 0


async def test_a_client_that_leaves_before_a_plain_answer_is_cancelled() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"

    with captured() as spans:
        await call(wrap_gateway(app), leave_after=0)
        assert one(spans()).attributes["tailtrace.outcome"] == "cancelled"


async def test_json_answers_give_usage_and_model_but_no_first_token() -> None:
    async def endpoint(request: Any) -> JSONResponse:
        return JSONResponse(
            {"model": "m-2", "choices": [{"message": {"content": 'x "prompt_tokens": 9'}}],
             "usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}}
        )  # fmt: skip

    with captured() as spans:
        await call(wrap_gateway(Starlette(routes=[Route("/", endpoint)])), path="/", method="GET")
        attributes = one(spans()).attributes
    assert attributes["gen_ai.usage.input_tokens"] == 3
    assert attributes["gen_ai.usage.output_tokens"] == 4
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 2
    assert attributes["gen_ai.response.model"] == "m-2"
    assert attributes["tailtrace.streaming"] is False
    assert "tailtrace.ttft_ns" not in attributes


async def test_a_thousand_chunks_are_one_span() -> None:
    with FakeClock() as now, captured() as spans:
        await call(streaming(sse(*[chat("x")] * 1000), now, gap_ms=1))
        assert [span.name for span in spans()] == ["POST", "net_in"]


async def test_stages_inside_are_children_and_attributes_reach_the_span() -> None:
    async def endpoint(request: Any) -> JSONResponse:
        with stage("queue"), stage("my own"):
            pass
        record = current_request()
        assert record is not None
        record.set("tenant", "acme")
        return JSONResponse({})

    with captured() as spans:
        await call(wrap_gateway(Starlette(routes=[Route("/", endpoint)])), path="/", method="GET")
        found = {span.name: span for span in spans()}
    request = one(list(found.values()))
    assert found["queue"].parent_span_id == request.span_id
    assert found["my own"].parent_span_id == found["queue"].span_id
    assert found["queue"].attributes == {"tailtrace.stage": "queue"}
    assert found["my own"].attributes == {"tailtrace.stage": "custom", "tailtrace.stage_name": "my own"}
    assert request.attributes["tailtrace.tenant"] == "acme"


async def test_before_instrument_it_only_passes() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = await call(wrap_gateway(app))
    assert "tailtrace.request" not in seen[0]
    assert [message["type"] for message in sent] == ["http.response.start"]


async def test_a_fault_of_ours_does_not_reach_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})

    monkeypatch.setattr("tailtrace.instrumentation.gateway.begin", fail)
    with captured():
        assert (await call(wrap_gateway(app)))[0]["status"] == 204


async def test_wrapping_twice_records_once(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    wrapped = wrap_gateway(app)
    with caplog.at_level(logging.WARNING):
        assert wrap_gateway(wrapped) is wrapped
    assert "wrapped already" in caplog.text

    async def around(scope: Any, receive: Any, send: Any) -> None:
        await wrapped(scope, receive, send)

    with captured() as spans:
        await call(wrap_gateway(around))
        one(spans())


async def test_a_websocket_is_one_span() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(1000):
            await send({"type": "websocket.send", "text": "x"})

    async def send(message: Any) -> None:
        pass

    with captured() as spans:
        await wrap_gateway(app)({"type": "websocket", "path": "/ws", "headers": []}, None, send)
        assert len(spans()) == 1


async def test_a_finished_request_needs_no_cycle_collector() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(weakref.ref(scope["tailtrace.request"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(3):
            await send({"type": "http.response.body", "body": sse(chat("x"))[0], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    gc.collect()
    gc.disable()
    try:
        with captured() as spans:
            await call(wrap_gateway(app))
            one(spans())
            # Another test's exporter may hold it for the moment it looks at streams; a cycle would hold it for ever.
            for _ in range(200):
                if seen[0]() is None:
                    break
                await asyncio.sleep(0.01)
            held = seen[0]()
            assert held is None, gc.get_referrers(held)
    finally:
        gc.enable()


class Leaving:
    """As uvicorn's cycle: it knows whether the client is there."""

    def __init__(self) -> None:
        self.disconnected = False

    async def receive(self) -> dict[str, Any]:
        self.disconnected = True
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Written."""


@pytest.mark.parametrize(("headers", "own"), [([], True), ([(b"content-length", b"0")], True),
    ([(b"content-length", b"2")], False), ([(b"transfer-encoding", b"chunked")], False)])  # fmt: skip
async def test_without_a_body_the_servers_own_receive_is_given_and_the_client_still_seen_leaving(
    headers: list[tuple[bytes, bytes]], own: bool
) -> None:
    cycle = Leaving()
    given: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        given.append(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()

    from asgi_calls import http_scope

    with captured() as spans:
        await wrap_gateway(app)({**http_scope(), "headers": headers}, cycle.receive, cycle.send)
        assert [span.attributes["tailtrace.outcome"] for span in spans()] == ["cancelled"]
    assert (given == [cycle.receive]) is own

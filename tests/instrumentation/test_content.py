"""Prompts and outputs: nothing unless switched on, and then past the hook, bounded, off the request's thread."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest
from asgi_calls import call, chat, sse
from receiver import receiver

from tailtrace.instrumentation import flush, instrument, shutdown, wrap_gateway
from tailtrace.instrumentation.buffer import weigh
from tailtrace.instrumentation.content import INPUT, OUTPUT, WITHHELD, Content
from tailtrace.instrumentation.record import Record
from tailtrace.instrumentation.settings import read_settings
from tailtrace.instrumentation.testing import captured

pytestmark = pytest.mark.anyio

ASKED = json.dumps({"messages": [{"role": "user", "content": "my card is 4111-1111"}]}).encode()
JSON = {"content-type": "application/json"}
VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def app_of(*bodies: bytes, content_type: str = "text/event-stream") -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type.encode())]}
        )
        for body in bodies:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return wrap_gateway(app)


async def asked_of(app: Any, body: bytes = ASKED, **settings: Any) -> dict[str, Any]:
    """The request span's attributes."""
    headers = {**JSON, "content-length": str(len(body))}
    with captured(**settings) as spans:
        await call(app, body, headers=headers)
        return dict(next(span for span in spans() if span.attributes.get("tailtrace.request")).attributes)


STREAM = sse(chat(role="assistant"), chat("Hel"), chat("lo"), "[DONE]")


async def test_nothing_is_recorded_unless_switched_on() -> None:
    attributes = await asked_of(app_of(*STREAM), redact=str.upper)
    assert "4111" not in str(attributes)
    assert "Hel" not in str(attributes)
    assert not {INPUT, OUTPUT, WITHHELD} & attributes.keys()
    assert attributes["gen_ai.response.model"] == "m-1"


async def test_prompt_and_streamed_output_as_the_conventions_write_them() -> None:
    attributes = await asked_of(app_of(*STREAM), capture_content=True)
    assert json.loads(attributes[INPUT]) == [
        {"role": "user", "parts": [{"type": "text", "content": "my card is 4111-1111"}]}
    ]
    assert json.loads(attributes[OUTPUT]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Hello"}], "finish_reason": "unknown"}
    ]
    assert attributes["tailtrace.ttft_ns"] > 0
    assert attributes["gen_ai.response.model"] == "m-1"


async def test_a_whole_answer_and_one_of_bare_text() -> None:
    whole = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()
    attributes = await asked_of(app_of(whole[:9], whole[9:], content_type="application/json"), capture_content=True)
    assert json.loads(attributes[OUTPUT])[0]["finish_reason"] == "stop"
    attributes = await asked_of(app_of(b"Hel", b"lo", content_type="text/plain; charset=utf-8"), capture_content=True)
    assert json.loads(attributes[OUTPUT])[0]["parts"] == [{"type": "text", "content": "Hello"}]


async def test_an_answer_to_no_question_for_a_model_is_not_recorded() -> None:
    attributes = await asked_of(app_of(*STREAM), b'{"user": "jo", "password": "secret"}', capture_content=True)
    assert not {INPUT, OUTPUT, WITHHELD} & attributes.keys()


async def test_every_text_passes_the_hook() -> None:
    body = json.dumps(
        {
            "system": "S4111",
            "messages": [
                {"role": "user", "content": "U4111"},
                {"role": "assistant", "tool_calls": [{"function": {"name": "N4111", "arguments": '{"n":"A4111"}'}}]},
                {"role": "tool", "content": "T4111"},
            ],
        }
    ).encode()
    answer = sse(chat("O41"), chat("11"))
    attributes = await asked_of(
        app_of(*answer), body, capture_content=True, redact=lambda text: text.replace("4111", "#")
    )
    for text in ("S#", "U#", "N#", "A#", "T#"):
        assert text in attributes[INPUT]
    # The pieces of a stream are joined before the hook sees them.
    assert "O#" in attributes[OUTPUT]
    assert "4111" not in str(attributes)


def raising(text: str) -> str:
    raise ValueError(f"cannot redact {text}")


def leaving(text: str) -> str:
    raise SystemExit(text)


@pytest.mark.parametrize(
    "hook",
    [raising, leaving, lambda text: None, lambda text: text.encode(), "no.such.module:f", "json:no_such", "json"],
)
async def test_where_the_hook_fails_nothing_is_recorded_and_the_span_says_so(
    hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tailtrace"):
        attributes = await asked_of(app_of(*STREAM), capture_content=True, redact=hook)
    assert attributes[WITHHELD] == "redaction"
    assert not {INPUT, OUTPUT} & attributes.keys()
    assert attributes["tailtrace.outcome"] == "ok"
    assert "4111" not in str(attributes)
    assert "the redaction hook failed" in caplog.text
    assert "4111" not in caplog.text


async def test_a_hook_that_fails_on_the_output_alone_takes_the_prompt_along() -> None:
    def hook(text: str) -> str:
        return raising(text) if "Hello" in text else text

    attributes = await asked_of(app_of(*STREAM), capture_content=True, redact=hook)
    assert attributes[WITHHELD] == "redaction"
    assert INPUT not in attributes


async def test_a_hook_named_by_module_and_function() -> None:
    attributes = await asked_of(app_of(*STREAM), capture_content=True, redact="html:escape")
    assert json.loads(attributes[INPUT])[0]["parts"][0]["content"] == "my card is 4111-1111"


async def test_texts_are_cut_after_the_hook_and_the_newest_messages_kept() -> None:
    body = json.dumps({"prompt": ["oldest", "a" * 30, "4111-1111"]}).encode()
    seen = []

    def hook(text: str) -> str:
        seen.append(text)
        return text.replace("4111-1111", "####-####")

    attributes = await asked_of(app_of(), body, capture_content=True, redact=hook, content_chars=20)
    texts = [message["parts"][0]["content"] for message in json.loads(attributes[INPUT])]
    assert texts == ["a" * 11 + "…", "####-####"]
    assert seen == ["4111-1111", "a" * 30]


async def test_a_body_too_large_to_keep_is_left_out_and_an_answer_is_kept_as_far_as_it_was() -> None:
    large = json.dumps({"prompt": "a" * 300_000}).encode()
    attributes = await asked_of(app_of(*STREAM), large, capture_content=True)
    assert attributes[WITHHELD] == "too_large"
    assert not {INPUT, OUTPUT} & attributes.keys()
    attributes = await asked_of(app_of(*sse(*[chat("x" * 1000)] * 300)), capture_content=True, content_chars=1_000_000)
    assert 200_000 < len(attributes[OUTPUT]) < 1 << 18


async def test_waiting_bodies_count_against_the_buffer() -> None:
    record = Record("POST")
    empty = weigh(record)[1]
    record.content = Content(100).gather()
    record.content.asked.add(b"x" * 5000)
    record.content.answered.add(b"x" * 700)
    assert weigh(record)[1] - empty == 5700


async def test_an_unsampled_request_gathers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Content, "gather", lambda self: pytest.fail("gathered"))
    with captured(sample=0, capture_content=True) as spans:
        await call(app_of(*STREAM), ASKED, headers={**JSON, "content-length": str(len(ASKED))})
    assert spans() == []


async def test_a_bad_message_is_the_servers_to_refuse() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": None})

    async def send(message: Any) -> None:
        raise RuntimeError("no headers")

    async def receive() -> Any:
        return {"type": "http.request", "body": None}

    scope: Any = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-length", b"3")]}
    with captured(capture_content=True), pytest.raises((RuntimeError, TypeError)):
        await wrap_gateway(app)(scope, receive, send)


def test_the_hook_runs_off_the_requests_thread() -> None:
    import asyncio

    threads = []

    def hook(text: str) -> str:
        threads.append(threading.current_thread().name)
        return text

    with receiver() as taken:
        instrument("chat", endpoint=taken.endpoint, capture_content=True, redact=hook, watch_loop=False)
        try:
            asyncio.run(call(app_of(*STREAM), ASKED, headers={**JSON, "content-length": str(len(ASKED))}))
            assert flush(10)
        finally:
            shutdown(5)
        assert threads == ["tailtrace-export"] * 2
        span = taken.requests()[0].resource_spans[0].scope_spans[0].spans[0]
        assert INPUT in {pair.key for pair in span.attributes}


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("true", True), ("SPAN_ONLY", True), ("span_and_event", True), ("", False), ("false", False),
        ("NO_CONTENT", False), ("EVENT_ONLY", False), ("2", False),
    ],
)  # fmt: skip
def test_the_standard_variable(text: str, on: bool) -> None:
    assert read_settings({VARIABLE: text}).capture_content is on
    assert read_settings({VARIABLE: text}, capture_content=False).capture_content is False


def test_settings_of_the_hook() -> None:
    assert read_settings({}).redact == ""
    assert read_settings({"TAILTRACE_REDACT": "app.privacy:mask"}).redact == "app.privacy:mask"
    assert read_settings({"TAILTRACE_REDACT": "app.privacy:mask"}, redact=str.upper).redact == str.upper

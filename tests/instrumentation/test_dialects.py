"""Whole answers in the dialects of many servers: first token, first of the answer, model, usage; cut at any byte."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from asgi_calls import http_scope
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrace.instrumentation import sse, wrap_gateway
from tailtrace.instrumentation.testing import FakeClock, captured

pytestmark = pytest.mark.anyio
DATA = Path(__file__).parents[1] / "data" / "streams"

# File: frame of the first token, frame of the first of the answer, model, input, output and cached tokens.
EXPECTED: dict[str, tuple[int, int, str | None, int | None, int | None, int | None]] = {
    "openai_chat_reasoning.sse": (2, 4, "big-model", 9, 4, 8),
    "openai_chat_tools.sse": (1, 1, "big-model", None, None, None),
    "openai_completions.sse": (1, 1, "big-model", 4, 2, None),
    "openai_responses.sse": (2, 3, "big-model", 7, 5, 0),
    "anthropic_messages.sse": (3, 5, "claude", 25, 15, 3),
    "tgi_generate.sse": (0, 0, None, 6, 3, None),
    "llama_cpp_completion.sse": (1, 1, "small.gguf", 11, 2, None),
    "ollama_chat.ndjson": (0, 0, "llama3.2", 26, 2, None),
    "gemini.sse": (0, 0, None, 8, 3, None),
}


def frames_of(name: str) -> list[bytes]:
    end = rb"\n" if name.endswith("ndjson") else rb"\r?\n\r?\n"
    return [frame for frame in re.findall(rb".+?" + end, (DATA / name).read_bytes(), re.DOTALL) if frame.strip()]


async def recorded(name: str) -> dict[str, Any]:
    """The request's attributes where each frame comes a millisecond after the one before."""
    kind = b"application/x-ndjson" if name.endswith("ndjson") else b"text/event-stream"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for frame in frames_of(name):
            now.advance_ms(1)
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        """Written."""

    with FakeClock() as now, captured() as spans:
        await wrap_gateway(app)(http_scope(), receive, send)
        (span,) = [span for span in spans() if "tailtrace.request" in span.attributes]
    return dict(span.attributes)


def test_every_dialect_is_expected_something_of() -> None:
    assert set(EXPECTED) == {path.name for path in DATA.iterdir()} - {"README.md"}


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_answer_of_each_dialect(name: str) -> None:
    first, answer, model, inputs, outputs, cached = EXPECTED[name]
    found = await recorded(name)
    assert found["tailtrace.outcome"] == "ok"
    assert found["tailtrace.ttft_ns"] == (first + 1) * 1_000_000
    assert found["tailtrace.ttft_answer_ns"] == (answer + 1) * 1_000_000
    usage = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    assert found.get("gen_ai.response.model") == model
    assert [found.get(f"gen_ai.usage.{key}") for key in usage] == [inputs, outputs, cached]
    assert found.get("tailtrace.tokens_source") == ("usage" if inputs is not None else None)


@pytest.mark.parametrize("name", EXPECTED)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_frames_cut_at_any_byte_mean_the_same(name: str, data: st.DataObject) -> None:
    body = b"".join(frames_of(name))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    frames, channels = sse.Frames(), []
    for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        channels.append(frames.feed(body[begin:end]))
    whole = sse.Frames()
    assert max(channels) == whole.feed(body) == sse.ANSWER
    assert frames.model == whole.model
    assert frames.usage == whole.usage

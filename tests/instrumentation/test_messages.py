"""Prompts and answers are read from the bodies of model calls, as the GenAI conventions write them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrace.instrumentation.messages import answered, asked


def text(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": one} for one in texts]}


def said(*parts: dict[str, Any], finish: str = "unknown") -> dict[str, Any]:
    return {"role": "assistant", "parts": list(parts), "finish_reason": finish}


def words(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


@pytest.mark.parametrize(
    ("request_body", "messages"),
    [
        (
            {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]},
            [text("system", "be brief"), text("user", "hi")],
        ),
        ({"prompt": "once upon"}, [text("user", "once upon")]),
        ({"prompt": ["a", "b"]}, [text("user", "a"), text("user", "b")]),
        ({"prompt": [1, 2, 3]}, []),
        ({"instructions": "be brief", "input": "hi"}, [text("system", "be brief"), text("user", "hi")]),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}, [text("user", "hi")]),
        (
            {"system": [{"type": "text", "text": "be brief"}], "messages": [{"role": "user", "content": "hi"}]},
            [text("system", "be brief"), text("user", "hi")],
        ),
        ({"inputs": "hi", "parameters": {}}, [text("user", "hi")]),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": "data:secret"}},
                {"type": "secret"},
            ]}]},
            [{"role": "user", "parts": [words("what is this"), {"type": "image_url"}, {"type": "other"}]}],
        ),
        (
            {"messages": [
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "c1", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            ]},
            [
                {"role": "assistant", "parts": [
                    {"type": "tool_call", "name": "weather", "arguments": '{"city":"Oslo"}'}]},
                {"role": "tool", "parts": [{"type": "tool_call_response", "response": "rain"}]},
            ],
        ),
        ({"messages": [{"role": "my name", "content": "hi"}]}, [text("user", "hi")]),
        ({"messages": [{"role": {}, "content": [{"type": [], "text": "hi"}]}]}, [text("user", "hi")]),
        ({"user": "jo", "password": "x"}, []),
        ([1, 2], []),
    ],
)  # fmt: skip
def test_what_was_asked(request_body: Any, messages: list[Any]) -> None:
    assert asked(json.dumps(request_body).encode()) == messages


@pytest.mark.parametrize(
    ("answer", "messages"),
    [
        (
            {"choices": [
                {"index": 0, "message": {"role": "assistant", "content": "one"}, "finish_reason": "stop"},
                {"index": 1, "message": {"role": "assistant", "content": "two"}, "finish_reason": "length"},
            ]},
            [said(words("one"), finish="stop"), said(words("two"), finish="length")],
        ),
        ({"choices": [{"index": 0, "text": "upon a time"}]}, [said(words("upon a time"))]),
        (
            {"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]},
            [said({"type": "tool_call", "name": "f", "arguments": "{}"})],
        ),
        (
            {"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"},
            [said(words("hi"), finish="end_turn")],
        ),
        ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]}, [said(words("hi"))]),
        ({"message": {"content": "hi"}, "done_reason": "stop"}, [said(words("hi"), finish="stop")]),
        ([{"generated_text": "hi"}], [said(words("hi"))]),
        ({"object": "list", "data": [{"embedding": [1.0]}]}, []),
        ({"error": {"message": "no such model"}}, []),
    ],
)  # fmt: skip
def test_what_was_answered_at_once(answer: Any, messages: list[Any]) -> None:
    for indent in (None, 2):
        assert answered(json.dumps(answer, indent=indent).encode()) == messages


def frames(*documents: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in documents) + b"data: [DONE]\n\n"


def test_a_stream_is_put_together_by_choice() -> None:
    body = frames(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]},
        {"choices": [{"index": 1, "delta": {"content": "B"}}, {"index": 0, "delta": {"content": "Hel"}}]},
        {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"completion_tokens": 3}},
    )
    assert answered(body) == [
        said({"type": "reasoning", "content": "hm"}, words("Hello"), finish="stop"),
        said(words("B")),
    ]


def test_pieces_of_tool_calls_are_put_together() -> None:
    def piece(**function: str) -> Any:
        return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": function}]}}]}

    body = frames(piece(name="weather", arguments=""), piece(arguments='{"city":'), piece(arguments='"Oslo"}'))
    assert answered(body) == [said({"type": "tool_call", "name": "weather", "arguments": '{"city":"Oslo"}'})]


def test_streams_of_other_engines() -> None:
    anthropic = frames(
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    )
    assert answered(anthropic) == [said(words("Hello"), finish="end_turn")]
    responses = frames(
        {"type": "response.output_text.delta", "delta": "Hel"}, {"type": "response.output_text.delta", "delta": "lo"},
        {"type": "response.completed", "response": {"output": []}},
    )  # fmt: skip
    assert answered(responses) == [said(words("Hello"))]
    ollama = b'{"message":{"content":"Hel"}}\n{"message":{"content":"lo"},"done_reason":"stop"}\n'
    assert answered(ollama) == [said(words("Hello"), finish="stop")]
    tgi = frames({"token": {"text": "Hel"}}, {"token": {"text": "lo"}, "generated_text": "Hello"})
    assert answered(tgi) == [said(words("Hello"))]


def test_a_stream_that_was_cut_gives_what_is_whole() -> None:
    body = frames({"choices": [{"delta": {"content": "Hel"}}]}, {"choices": [{"delta": {"content": "lo"}}]})
    assert answered(body[: body.index(b'"lo"')]) == [said(words("Hel"))]


def test_bare_text_is_only_read_where_it_is_said_to_be() -> None:
    assert answered(b"Hello") == []
    assert answered(b"Hello", plain=True) == [text("assistant", "Hello")]


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "prompt", "input", "system", "content", "role", "type", "choices", "delta", "message",
                 "index", "text", "tool_calls", "function", "name", "arguments", "output", "token", "finish_reason"]
            ),
            inner | st.sampled_from(["text", "message", "tool_use", "tool_result", "function_call"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(json_values)
def test_any_json_is_read_without_an_error_into_messages_of_texts(document: Any) -> None:
    body = json.dumps(document).encode()
    for message in asked(body) + answered(body) + answered(b"data: " + body + b"\n\n"):
        assert message["parts"]
        for part in message["parts"]:
            assert all(isinstance(value, str) for value in part.values())


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"\x1f\x8b\x08\x00"])
def test_what_is_no_json_is_nothing(body: bytes) -> None:
    assert asked(body) == answered(body) == []

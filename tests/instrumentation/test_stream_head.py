"""The head of a stream is read alike, whole chunk by whole chunk or cut at every byte."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailtrace.instrumentation.sse import ANSWER, NOTHING, Frames

deltas = st.fixed_dictionaries(
    {}, optional={"role": st.just("assistant"), "content": st.sampled_from(["", "a", 'say "delta":{"content":"x"']),
                  "reasoning_content": st.sampled_from(["", "r"])},
)  # fmt: skip
usage = st.fixed_dictionaries({"completion_tokens": st.integers(0, 9)})
frames = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"index": st.integers(0, 2), "delta": deltas}), max_size=2)},
    optional={
        "model": st.sampled_from(["m", "n"]),
        "usage": st.fixed_dictionaries({"completion_tokens": st.integers(0, 9)}),
    },
)


@given(frames, st.sampled_from(["\n", "\n\n", "\r\n\r\n"]))
def test_a_whole_chunk_and_its_bytes_say_the_same(frame: dict[str, Any], end: str) -> None:
    body = f"data: {json.dumps(frame)}{end}".encode()
    whole, cut = Frames(), Frames()
    channel = whole.feed(body)
    assert channel == max(cut.feed(body[at : at + 1]) for at in range(len(body)))
    assert (whole.model, whole.usage) == (cut.model, cut.usage)


def test_text_in_a_comment_beside_a_role_is_no_token() -> None:
    body = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n: "delta":{"content":"x"}\n\n'
    assert Frames().feed(body) == NOTHING
    assert Frames().feed(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n') == ANSWER

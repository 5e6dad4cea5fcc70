"""Which frames of a stream carry generated tokens, and what its usage frame says.

Understands OpenAI chat, completions and responses, Anthropic messages, TGI, llama.cpp, Ollama and Gemini, as
server-sent events or as JSON lines. A frame it cannot read counts as a token, so that a stream of plain text still has
a first token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from tailtrace.instrumentation.native import native

NOTHING: Final = 0
REASONING: Final = 1
ANSWER: Final = 2

_MAX_CARRY: Final = 1 << 16
_REASONING_KEYS: Final = ("reasoning_content", "reasoning", "thinking")
_ANSWER_KEYS: Final = ("content", "tool_calls", "function_call", "refusal", "audio")

# Chat chunks by far the most often; quotes inside generated text are escaped, so this cannot match there.
_CHAT_TEXT: Final = re.compile(rb'"delta"\s*:\s*\{[^{}]*"content"\s*:\s*"[^"]')
# Chunks of completions as vLLM writes them.
_COMPLETION_TEXT: Final = re.compile(rb'"choices"\s*:\s*\[\s*\{\s*"index"\s*:\s*\d+\s*,\s*"text"\s*:\s*"[^"]')
_MODEL: Final = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')
_INDEX: Final = re.compile(rb'"index"\s*:\s*([1-9]\d{0,3})')
_INPUT: Final = "gen_ai.usage.input_tokens"
_OUTPUT: Final = "gen_ai.usage.output_tokens"
_CACHED: Final = "gen_ai.usage.cache_read.input_tokens"
# OpenAI's and Anthropic's names, Ollama's, llama.cpp's, TGI's, Gemini's.
_USAGE_NAMES: Final = {
    **dict.fromkeys(
        (
            b"prompt_tokens", b"input_tokens", b"prompt_eval_count", b"tokens_evaluated", b"input_length",
            b"promptTokenCount",
        ),
        _INPUT,
    ),
    **dict.fromkeys(
        (
            b"completion_tokens", b"output_tokens", b"eval_count", b"tokens_predicted", b"generated_tokens",
            b"candidatesTokenCount",
        ),
        _OUTPUT,
    ),
    **dict.fromkeys((b"cached_tokens", b"cache_read_input_tokens", b"cachedContentTokenCount"), _CACHED),
}  # fmt: skip
_COUNT: Final = re.compile(rb'"(%b)"\s*:\s*(\d{1,12})' % b"|".join(_USAGE_NAMES))
# One of these is in every name, and in few other frames.
_USAGE_PARTS: Final = (b"_tokens", b"tokens_", b"_count", b"_length", b"TokenCount")


def payloads(body: bytes) -> Iterable[bytes]:
    """The data of each frame in `body`: after `data:`, or a JSON line; comments, events, ids and blanks left out."""
    for line in body.splitlines():
        if line.startswith(b"data:"):
            data = line[5:].strip()
        elif line[:1] == b"{":
            data = line
        else:
            continue
        if data and data != b"[DONE]":
            yield data


def channel_of(payload: bytes) -> int:
    """NOTHING, REASONING or ANSWER (content, tool calls) for one frame's data."""
    if _CHAT_TEXT.search(payload) or _COMPLETION_TEXT.search(payload):
        return ANSWER
    try:
        document = json.loads(payload)
    except ValueError:
        return ANSWER
    return channel_of_document(document)


def channel_of_document(document: Any) -> int:
    """The same for a frame that is parsed already."""
    if not isinstance(document, dict):
        return ANSWER if document else NOTHING
    choices = document.get("choices")
    if isinstance(choices, list):
        return max((_choice(choice) for choice in choices), default=NOTHING)
    kind = document.get("type")
    if isinstance(kind, str):
        return _typed(kind, document.get("delta"))
    if "error" in document:
        return NOTHING
    token = document.get("token")
    if isinstance(token, dict):
        return ANSWER if token.get("text") else NOTHING
    message = document.get("message")
    if isinstance(message, dict):
        return _parts(message)
    for key in ("content", "response", "text", "delta", "generated_text", "output"):
        if key in document:
            return ANSWER if document[key] else NOTHING
    return NOTHING if "usage" in document else ANSWER


def _choice(choice: Any) -> int:
    if not isinstance(choice, dict):
        return NOTHING
    delta = choice.get("delta") or choice.get("message")
    if isinstance(delta, dict):
        return _parts(delta)
    return ANSWER if choice.get("text") else NOTHING


def _parts(delta: dict[str, Any]) -> int:
    for key in _ANSWER_KEYS:
        if delta.get(key):
            return ANSWER
    for key in _REASONING_KEYS:
        if delta.get(key):
            return REASONING
    return NOTHING


def _typed(kind: str, delta: Any) -> int:
    """Frames that name their type: OpenAI responses (`….delta`) and Anthropic messages (`content_block_delta`)."""
    if not kind.endswith(("delta", "chunk")) or not delta:
        return NOTHING
    if isinstance(delta, dict):
        if delta.get("thinking"):
            return REASONING
        return ANSWER if delta.get("text") or delta.get("partial_json") or delta.get("content") else NOTHING
    return REASONING if "reasoning" in kind else ANSWER


class Frames:
    """Reads the head of a stream, over frames cut at any byte."""

    __slots__ = ("_carry", "model", "usage")

    def __init__(self) -> None:
        self._carry = b""
        self.model = ""
        self.usage: dict[str, int] = {}

    def feed(self, body: bytes) -> int:
        """The best channel among the frames that `body` completes."""
        if not self._carry and _one_chat_text(body):
            if not self.model:
                self.model = read_model(body)
            if b"usage" in body:
                self.usage.update(read_usage(body))
            return ANSWER
        if self._carry:
            body = self._carry + body
        cut = body.rfind(b"\n") + 1
        self._carry = body[cut:] if len(body) - cut <= _MAX_CARRY else b""
        best = NOTHING
        for payload in payloads(body[:cut]):
            best = max(best, channel_of(payload))
            if not self.model:
                self.model = read_model(payload)
            if b"usage" in payload:
                self.usage.update(read_usage(payload))
        return best


def plain_one_chat_text(body: bytes) -> bool:
    """Whether a body is one chat chunk with text and nothing else, as most are: seen without taking it apart."""
    return body.startswith(b"data:") and 0 <= len(body) - 2 <= body.find(b"\n") and _CHAT_TEXT.search(body) is not None


_one_chat_text: Callable[[bytes], bool] = plain_one_chat_text if native is None else native.one_chat_text


def carries_token(body: bytes) -> bool:
    """Whether a body near the end of a stream holds generated tokens."""
    if _one_chat_text(body):
        return True
    return any(channel_of(payload) for payload in payloads(body))


def read_usage(body: bytes) -> dict[str, int]:
    """Token counts by their convention's names. Quotes inside generated text are escaped, so text is not mistaken."""
    for part in _USAGE_PARTS:
        if part in body:
            break
    else:
        return {}
    return {_USAGE_NAMES[name]: int(count) for name, count in _COUNT.findall(body)}


def read_model(body: bytes) -> str:
    """The answer's `model`, or an empty text."""
    found = _MODEL.search(body)
    return found.group(1).decode("utf-8", "replace") if found else ""


def samples(body: bytes) -> int:
    """How many answers a body near the end speaks of: its highest choice index, and one."""
    if body.count(b'"index"') == body.count(b'"index":0'):
        return 1
    return max(map(int, _INDEX.findall(body)), default=0) + 1

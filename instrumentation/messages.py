"""Prompts and answers of model calls, read from their bodies into the form of OpenTelemetry's GenAI conventions.

A message is `{"role", "parts": [...]}`, an answer's also has a `finish_reason`. Parts are `text`, `reasoning`,
`tool_call` and `tool_call_response`; of anything else (images, audio, files) only the kind is kept. Understands OpenAI
chat, completions and responses, Anthropic messages, Ollama, TGI and llama.cpp, whole or as a stream. Nothing here is
called unless recording of content is switched on.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tailtrace.instrumentation.sse import payloads

Message = dict[str, Any]

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_TEXTS: Final = frozenset({"text", "input_text", "output_text", "summary_text"})
# Kinds of parts that are told, without what they hold.
_KINDS: Final = frozenset(
    {"image", "image_url", "input_image", "audio", "input_audio", "video_url", "file", "input_file", "document"}
)


def asked(body: bytes) -> list[Message]:
    """The messages that a request's body puts to a model; none where it is no such request or cannot be read."""
    document = _document(body)
    if not isinstance(document, dict):
        return []
    messages = []
    for key in ("system", "instructions"):
        messages += _message("system", document.get(key))
    for key in ("messages", "prompt", "input", "inputs"):
        value = document.get(key)
        items = value if isinstance(value, list) else [value]
        for item in items:
            messages += _item(item, "user")
    return messages


def answered(body: bytes, plain: bool = False) -> list[Message]:
    """The messages of an answer, whole or as the frames of a stream, cut anywhere; `plain`: the body is bare text."""
    if plain:
        return _message("assistant", body.decode("utf-8", "replace"))
    answers = _Answers()
    document = _document(body)
    for one in [document] if document is not None else map(_document, payloads(body)):
        for part in one if isinstance(one, list) else [one]:
            if isinstance(part, dict):
                answers.feed(part)
    return answers.messages()


def _document(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _message(role: Any, content: Any, *more: Message) -> list[Message]:
    """One message, or none where it holds nothing."""
    parts = [*_parts(content), *more]
    # Other names of roles come from the caller and could be anything.
    return [{"role": role if _text(role) in _ROLES else "user", "parts": parts}] if parts else []


def _item(item: Any, role: str) -> list[Message]:
    """A message, an item of OpenAI's responses, or a bare text."""
    if isinstance(item, str):
        return _message(role, item)
    if not isinstance(item, dict):
        return []
    kind = item.get("type")
    if kind == "function_call":
        return _message("assistant", None, _call(item))
    if kind == "function_call_output":
        return _message("tool", None, *_response(item.get("output")))
    role = item.get("role", role)
    content = item.get("summary") if kind == "reasoning" else item.get("content")
    if role == "tool" and isinstance(content, str):
        return _message(role, None, *_response(content))
    calls = [_call(call.get("function", call)) for call in _dicts(item.get("tool_calls"))]
    thought = item.get("reasoning_content") or item.get("reasoning")
    thoughts = [{"type": "reasoning", "content": thought}] if isinstance(thought, str) else []
    return _message(role, content, *thoughts, *calls)


def _parts(content: Any) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    if not isinstance(content, list):
        return []
    parts: list[Message] = []
    for part in content:
        if isinstance(part, str):
            parts += _parts(part)
        elif isinstance(part, dict):
            kind = _text(part.get("type"))
            if kind in _TEXTS or (not kind and "text" in part):
                parts += _parts(part.get("text"))
            elif kind == "thinking":
                parts += [{**one, "type": "reasoning"} for one in _parts(part.get("thinking"))]
            elif kind == "tool_use":
                parts.append(_call(part))
            elif kind == "tool_result":
                parts += _response(part.get("content"))
            else:
                parts.append({"type": kind if kind in _KINDS else "other"})
    return parts


def _call(call: Message) -> Message:
    arguments = call.get("arguments", call.get("input"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"type": "tool_call", "name": _text(call.get("name")), "arguments": text}


def _response(content: Any) -> list[Message]:
    return [
        {"type": "tool_call_response", "response": part["content"]} for part in _parts(content) if "content" in part
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dicts(value: Any) -> list[Message]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _index(of: Message) -> int:
    index = of.get("index")
    return index if isinstance(index, int) else 0


class _Answer:
    """One answer of a call, put together from its pieces."""

    def __init__(self) -> None:
        self.whole: list[Message] = []
        self.texts: dict[str, list[str]] = {"reasoning": [], "text": []}
        self.calls: dict[int, Message] = {}
        self.finish_reason = ""

    def add(self, kind: str, text: Any) -> None:
        if isinstance(text, str):
            self.texts[kind].append(text)

    def call(self, index: int, name: Any, arguments: Any) -> None:
        call = self.calls.setdefault(index, {"type": "tool_call", "name": "", "arguments": ""})
        call["name"] += _text(name)
        call["arguments"] += _text(arguments)

    def message(self) -> list[Message]:
        parts = list(self.whole)
        for kind, texts in self.texts.items():
            if any(texts):
                parts.append({"type": kind, "content": "".join(texts)})
        parts += self.calls.values()
        if not parts:
            return []
        return [{"role": "assistant", "parts": parts, "finish_reason": self.finish_reason[:32] or "unknown"}]


class _Answers:
    """Reads whole answers and frames of streams alike."""

    def __init__(self) -> None:
        self._by_index: dict[int, _Answer] = {}

    def messages(self) -> list[Message]:
        return [message for _, answer in sorted(self._by_index.items()) for message in answer.message()]

    def _of(self, index: int = 0) -> _Answer:
        return self._by_index.setdefault(index, _Answer())

    def feed(self, document: Message) -> None:
        if isinstance(document.get("choices"), list):
            for choice in _dicts(document["choices"]):
                self._choice(self._of(_index(choice)), choice)
        elif isinstance(document.get("output"), list):
            for item in document["output"]:
                for message in _item(item, "assistant"):
                    self._of().whole += message["parts"]
        elif isinstance(document.get("type"), str):
            self._typed(document["type"], document)
        else:
            self._bare(document)

    def _choice(self, answer: _Answer, choice: Message) -> None:
        answer.add("text", choice.get("text"))
        answer.finish_reason = _text(choice.get("finish_reason")) or answer.finish_reason
        if isinstance(choice.get("message"), dict):
            for message in _item(choice["message"], "assistant"):
                answer.whole += message["parts"]
        delta = choice.get("delta")
        if isinstance(delta, dict):
            answer.add("text", delta.get("content"))
            answer.add("reasoning", delta.get("reasoning_content") or delta.get("reasoning"))
            for call in _dicts(delta.get("tool_calls")):
                function = call.get("function")
                if isinstance(function, dict):
                    answer.call(_index(call), function.get("name"), function.get("arguments"))

    def _typed(self, kind: str, document: Message) -> None:
        """Anthropic messages, whole and in frames, and the frames of OpenAI's responses."""
        answer, delta = self._of(), document.get("delta")
        if kind == "message":
            answer.whole += _parts(document.get("content"))
            answer.finish_reason = _text(document.get("stop_reason"))
        elif kind == "content_block_start" and isinstance(document.get("content_block"), dict):
            block = document["content_block"]
            if block.get("type") == "tool_use":
                answer.call(_index(document), block.get("name"), "")
        elif kind == "content_block_delta" and isinstance(delta, dict):
            answer.add("text", delta.get("text"))
            answer.add("reasoning", delta.get("thinking"))
            if "partial_json" in delta:
                answer.call(_index(document), "", delta["partial_json"])
        elif kind == "message_delta" and isinstance(delta, dict):
            answer.finish_reason = _text(delta.get("stop_reason")) or answer.finish_reason
        elif kind == "response.output_text.delta":
            answer.add("text", delta)
        elif kind.startswith("response.reasoning") and kind.endswith(".delta"):
            answer.add("reasoning", delta)

    def _bare(self, document: Message) -> None:
        """Ollama, TGI and llama.cpp."""
        answer = self._of()
        message, token = document.get("message"), document.get("token")
        if isinstance(message, dict):
            answer.add("text", message.get("content"))
            answer.add("reasoning", message.get("thinking"))
        elif isinstance(token, dict):
            if not token.get("special"):
                answer.add("text", token.get("text"))
        else:
            for key in ("response", "generated_text", "content"):
                answer.add("text", document.get(key))
        answer.finish_reason = _text(document.get("done_reason")) or answer.finish_reason

"""Prompts and outputs, where recording them is switched on: gathered beside the request, redacted and cut off its way.

On the request's path bodies are only kept. They are read, given to the redaction hook and cut by the background thread;
where the hook fails in any way nothing of that request is recorded, and its span says so.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any, Final

from tailtrace.instrumentation.messages import Message, answered, asked
from tailtrace.instrumentation.transport import Every

log = logging.getLogger("tailtrace")

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Redact = Callable[[str], str]

INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
# Why a span has no content although it is switched on: `redaction`, or `too_large`.
WITHHELD: Final = "tailtrace.content_withheld"

_MAX_BODY: Final = 1 << 18
_MAX_MESSAGES: Final = 256
_CUT: Final = "…"
# What of a part is text, and may be personal.
_TEXTS: Final = ("content", "response", "arguments", "name")


class RedactionFailed(Exception):
    """The hook raised, gave no text, or could not be found."""


class Content:
    """How content is recorded in this process: how much of it, and past which hook."""

    def __init__(self, limit: int, redact: Redact | str | None = None) -> None:
        """`limit`: characters kept of all inputs and of all outputs of a request. `redact`: the hook, or
        `module:function`, which is looked up when first needed.
        """
        self._limit = limit
        self._redact = redact
        self._may_log = Every(60.0, time.monotonic)
        self.withheld = 0

    def gather(self) -> Gathered:
        """For the bodies of one request."""
        return Gathered(self)

    def attributes(self, gathered: Gathered) -> dict[str, Any]:
        """The span's attributes for what was gathered; empty where it was no call of a model. Never raises."""
        try:
            if gathered.asked.cut:
                return self._withhold("too_large", "the request's body is larger than %d bytes", _MAX_BODY)
            question = asked(gathered.asked.joined())
            if not question:
                return {}
            answer = answered(gathered.answered.joined(), gathered.plain)
            found = {INPUT: self._written(question), OUTPUT: self._written(answer)}
            return {name: text for name, text in found.items() if text}
        except RedactionFailed as failed:
            return self._withhold("redaction", "the redaction hook failed: %s", failed)
        except Exception:
            return self._withhold("fault", "a fault of ours")

    def _withhold(self, reason: str, text: str, *arguments: Any) -> dict[str, Any]:
        self.withheld += 1
        if self._may_log():
            # Without the hook's own message, which may quote what it was given.
            log.warning(
                "tailtrace: content of a request is not recorded (" + text + "); %d so far", *arguments, self.withheld
            )
        return {WITHHELD: reason}

    def _written(self, messages: list[Message]) -> str:
        """JSON of the newest messages, redacted and only then cut: a hook would not know half a number."""
        left = self._limit
        kept: list[Message] = []
        for message in reversed(messages[-_MAX_MESSAGES:]):
            if left <= 0:
                break
            parts = []
            for part in message["parts"][:_MAX_MESSAGES]:
                part = dict(part)
                for key in _TEXTS:
                    if key in part:
                        text = self._redacted(part[key])
                        part[key] = text if len(text) <= left else text[:left] + _CUT
                        left = max(0, left - len(text))
                parts.append(part)
            kept.append({**message, "parts": parts})
        return json.dumps(kept[::-1], ensure_ascii=False) if kept else ""

    def _redacted(self, text: str) -> str:
        if self._redact is None or not text:
            return text
        try:
            if isinstance(self._redact, str):
                self._redact = _found(self._redact)
            changed = self._redact(text)
        except BaseException as error:
            # Also SystemExit: it would end the thread that sends.
            raise RedactionFailed(type(error).__name__) from None
        if not isinstance(changed, str):
            raise RedactionFailed(f"expected a text, got {type(changed).__name__}")
        return changed


def _found(name: str) -> Redact:
    """The hook that `module:function` names."""
    module, _, function = name.partition(":")
    found: Redact = getattr(import_module(module), function)
    return found


class _Bodies:
    """Pieces of one body, up to a limit."""

    __slots__ = ("_pieces", "cut", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0
        self.cut = False

    def add(self, body: Any) -> None:
        if self.size + len(body) > _MAX_BODY:
            self.cut = True
        elif body and not self.cut:
            self.size += len(body)
            self._pieces.append(bytes(body))

    def joined(self) -> bytes:
        return b"".join(self._pieces)


class Gathered:
    """The bodies of one request and its answer, until the background thread reads them."""

    __slots__ = ("_content", "answered", "asked", "plain")

    def __init__(self, content: Content) -> None:
        self._content = content
        self.asked = _Bodies()
        self.answered = _Bodies()
        self.plain = False

    @property
    def size(self) -> int:
        """Bytes held."""
        return self.asked.size + self.answered.size

    def attributes(self) -> dict[str, Any]:
        """What the request's span gets of it."""
        return self._content.attributes(self)

    def receiving(self, receive: Receive) -> Receive:
        """`receive`, whose bodies are kept."""

        async def watched() -> AsgiMessage:
            message = await receive()
            self._keep(message)
            return message

        return watched

    def sending(self, send: Send) -> Send:
        """`send`, whose bodies are kept."""

        def watched(message: AsgiMessage) -> Awaitable[None]:
            self._keep(message)
            return send(message)

        return watched

    def _keep(self, message: AsgiMessage) -> None:
        try:
            kind = message["type"]
            if kind == "http.response.body":
                self.answered.add(message.get("body", b""))
            elif kind == "http.request":
                self.asked.add(message.get("body", b""))
            elif kind == "http.response.start":
                headers = {name.lower(): value for name, value in message.get("headers", ())}
                self.plain = headers.get(b"content-type", b"").lower().startswith(b"text/plain")
                self.plain &= b"content-encoding" not in headers
        except Exception:
            # The server says what is wrong with a message.
            pass

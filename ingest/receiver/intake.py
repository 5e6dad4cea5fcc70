"""What every door does with a body: inflate, convert, check, hand over, wait until it is on disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Literal, Protocol

from tailtrace.errors import Overloaded
from tailtrace.ingest.receiver.answers import Outcome
from tailtrace.ingest.receiver.checks import Checked, check
from tailtrace.ingest.receiver.counters import Counters
from tailtrace.ingest.receiver.inflate import inflate
from tailtrace.ingest.receiver.limits import Limits
from tailtrace.ingest.receiver.otlp_json import to_protobuf

Signal = Literal["traces", "metrics", "logs"]

_INLINE_BYTES: Final = 256 * 1024
"""Protobuf up to this size is checked where it arrives, in a third of a millisecond; larger bodies in a thread."""


class Busy(Overloaded):
    """Too much is being received at this moment."""


class Sink(Protocol):
    """Where checked bodies go; `tailtrace.ingest.pipeline.Pipeline` is one."""

    def submit(self, signal: Signal, body: bytes, items: int) -> Future[None]:
        """The future is done once the body is durable. Raises Overloaded."""
        ...


class Intake:
    """The common part of all doors. Belongs to one event loop; heavy bodies are worked on in two threads of its own."""

    def __init__(self, sink: Sink, limits: Limits, counters: Counters, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock` gives Unix nanoseconds."""
        self.limits = limits
        self.counters = counters
        self._sink = sink
        self._clock = clock
        self._in_flight = 0
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="otlp-check")

    @contextmanager
    def receiving(self) -> Iterator[Callable[[int], None]]:
        """Gives a function to call with the size of each piece held; it raises Busy when all senders hold too much."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if self._in_flight + size > self.limits.in_flight_bytes:
                raise Busy("too many bodies are being received at once; retry in a moment", retry_after_s=1)
            self._in_flight += size
            held += size

        try:
            yield hold
        finally:
            self._in_flight -= held

    async def accept(self, signal: Signal, body: bytes, *, encoding: str = "identity", json: bool = False) -> Outcome:
        """Returns once what is good in the body is durable. Raises Rejected, TooLarge or Overloaded."""
        if encoding == "identity" and not json and len(body) <= _INLINE_BYTES:
            checked = self._checked(signal, body, encoding, json)
        else:
            loop = asyncio.get_running_loop()
            checked = await loop.run_in_executor(self._workers, self._checked, signal, body, encoding, json)
        try:
            if checked.body:  # without an item it may still carry what a client lost
                durable = asyncio.wrap_future(self._sink.submit(signal, checked.body, checked.items))
                await asyncio.wait_for(durable, self.limits.commit_timeout_s)
        except (Overloaded, TimeoutError) as error:
            self.counters.answered(signal, deferred=checked.items + checked.rejected.total())
            if isinstance(error, Overloaded):
                raise
            raise Overloaded(f"the body was not on disk within {self.limits.commit_timeout_s:.0f} s") from error
        self.counters.answered(signal, accepted=checked.items, rejected=checked.rejected, mended=checked.mended)
        return Outcome(checked.rejected.total(), checked.first_reason)

    def _checked(self, signal: Signal, body: bytes, encoding: str, json: bool) -> Checked:
        if encoding != "identity":
            body = inflate(body, encoding, self.limits.inflated_bytes)
        if not json:
            return check(signal, body, self.limits, self._clock())
        converted = to_protobuf(signal, body)
        checked = check(signal, converted.body, self.limits, self._clock())
        if not converted.rejected:
            return checked
        return replace(
            checked,
            rejected=converted.rejected + checked.rejected,
            first_reason=converted.first_reason or checked.first_reason,
        )

"""For tests of your own instrumentation: what was recorded, without a receiver; a clock and ids that you set.

with captured() as spans:
    client.post("/v1/chat/completions")
assert [span.name for span in spans()] == [...]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tailtrace.instrumentation import clock, ids, record, runtime
from tailtrace.instrumentation.encode import request_attributes
from tailtrace.instrumentation.otlp import INTERNAL, STATUS_ERROR, STATUS_UNSET, SpanData
from tailtrace.instrumentation.record import Record, Stage
from tailtrace.instrumentation.settings import Settings
from tailtrace.instrumentation.transport import Answer
from tailtrace.stages import BY_NAME


class KeptBodies:
    """A transport that keeps what it is given."""

    address = "memory"

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def send(self, body: bytes) -> Answer:
        self.bodies.append(body)
        return Answer(True)

    def abort(self) -> None:
        """Nothing waits."""


class FakeClock:
    """A clock that moves only when told: `with FakeClock() as now: now.advance_ms(5)`."""

    def __init__(self, start_ns: int = 1_000_000_000, unix_ns: int = 1_700_000_000_000_000_000) -> None:
        self.ns = start_ns
        self._anchor = unix_ns - start_ns
        self._former: Any = None

    def __call__(self) -> int:
        return self.ns

    def advance_ms(self, milliseconds: float) -> None:
        self.ns += round(milliseconds * 1e6)

    def __enter__(self) -> FakeClock:
        self._former = clock.use(self, self._anchor)
        return self

    def __exit__(self, *exc: Any) -> None:
        clock.use(*self._former)


def spans_of(item: Any) -> list[SpanData]:
    """The spans that one recorded item becomes, as the exporter would send them."""
    anchor = clock.anchor_ns()
    if isinstance(item, Record):
        attributes = request_attributes(item)
        failed = item.outcome in {"error", "timeout"}
        span = SpanData(
            item.trace_id,
            item.span_id,
            item.parent_span_id,
            item.name,
            item.kind,
            item.start_ns + anchor,
            item.end_ns + anchor,
            attributes,
            STATUS_ERROR if failed else STATUS_UNSET,
            item.error if failed else "",
        )
        found = [span, *(span for stage in item.stages for span in spans_of(stage))]
        # As the exporter does: a stage knows its record.
        item.stages = []
        return found
    if isinstance(item, Stage):
        known = item.name in BY_NAME and item.name != "custom"
        attributes = (
            {"tailtrace.stage": item.name}
            if known
            else {"tailtrace.stage": "custom", "tailtrace.stage_name": item.name}
        )
        return [
            SpanData(
                item.trace_id,
                item.span_id,
                item.parent.span_id if item.parent is not None else b"",
                item.name,
                INTERNAL,
                item.start_ns + anchor,
                item.end_ns + anchor,
                {**attributes, **(item.attributes or {})},
                STATUS_ERROR if item.error else STATUS_UNSET,
                item.error,
            )
        ]
    return [item]


@contextmanager
def captured(
    sample: int = 1,
    seed: int | None = None,
    *,
    capture_content: bool = False,
    redact: Callable[[str], str] | str = "",
    content_chars: int = 4096,
    **resource: Any,
) -> Iterator[Callable[[], list[SpanData]]]:
    """Record into memory inside the block; call what it yields for all spans finished so far, in order of their end.

    Nothing is sent and no thread runs. `seed` makes ids repeatable; `capture_content` and the two after it are the
    settings of those names. A running `instrument()` is set aside meanwhile.
    """
    items: list[Any] = []
    spans: list[SpanData] = []

    def read() -> list[SpanData]:
        while items:
            spans.extend(spans_of(items.pop(0)))
        return spans

    former = (runtime.active, record.submit, record.count_loss)
    running = runtime.Runtime(
        Settings(
            sample=sample, service_name="test", resource=resource, watch_loop=False,
            capture_content=capture_content, redact=redact, content_chars=content_chars,
        )
    )  # fmt: skip
    runtime.active = running
    record.submit = items.append
    ids.seed(seed)
    try:
        yield read
    finally:
        runtime.active, record.submit, record.count_loss = former
        ids.seed(None)

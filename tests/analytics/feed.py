"""Puts spans and OTLP bodies into a store the way the receiver does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from tailtrace.analytics.trace import Span
from tailtrace.ingest.framing import frame
from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import SpanData, encode_traces

VLLM = Path(__file__).parent.parent / "data" / "vllm"
_KINDS = {"Internal": 1, "Server": 2, "Client": 3, "Producer": 4, "Consumer": 5}


def store_now_ms(store: Store) -> int:
    return int(store.query("SELECT toUnixTimestamp64Milli(now64(3)) AS now")[0]["now"])


def feed_bodies(store: Store, folder: Path, bodies: Sequence[bytes]) -> None:
    """One insert of these OTLP bodies."""
    path = folder / f"{uuid4()}.otlp"
    path.write_bytes(b"".join(frame(body) + body for body in bodies))
    store.insert_segment("traces", path, str(uuid4()))


def feed(store: Store, folder: Path, spans: Sequence[Span]) -> None:
    """One insert of these spans; a service's resource is {"service.name": it} with the span's own resource."""
    bodies = [encode_traces({"service.name": span.service, **span.resource}, [_data(span)]) for span in spans]
    feed_bodies(store, folder, bodies)


def _data(span: Span) -> SpanData:
    return SpanData(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_span_id),
        name=span.name,
        kind=_KINDS[span.kind],
        start_unix_ns=span.start_unix_ns,
        end_unix_ns=span.end_unix_ns,
        attributes=dict(span.attributes),
    )


def feed_together(store: Store, folder: Path, spans: Sequence[Span]) -> None:
    """One insert of one body of these spans, all of the first one's service."""
    data = [_data(span) for span in spans]
    feed_bodies(store, folder, [encode_traces({"service.name": spans[0].service}, data)])


def vllm_bodies() -> list[bytes]:
    return [path.read_bytes() for path in sorted(VLLM.glob("traces-*.pb"))]

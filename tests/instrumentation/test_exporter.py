"""The export thread: nothing lost in silence, retries, bounded memory and bounded shutdown."""

from __future__ import annotations

import gzip
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from receiver import receiver, until

from tailtrace.instrumentation.exporter import Exporter
from tailtrace.instrumentation.otlp import SpanData
from tailtrace.instrumentation.settings import Settings
from tailtrace.instrumentation.transport import open_transport


def span(name: str = "s") -> SpanData:
    return SpanData(b"t" * 16, b"s" * 8, b"", name, 1, 1, 2)


@contextmanager
def exporter(endpoint: str, **settings: Any) -> Iterator[Exporter]:
    chosen = Settings(endpoint=endpoint, **{"interval_s": 0.02, "shutdown_s": 1.0, **settings})
    made = Exporter(chosen, {"service.name": "t", "service.instance.id": "i"}, open_transport(chosen))
    made.start()
    try:
        yield made
    finally:
        made.shutdown(1.0)


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_everything_put_is_sent_over_one_connection() -> None:
    with receiver() as sink, exporter(sink.endpoint, headers={"authorization": "Bearer x"}) as made:
        for index in range(300):
            made.put(span(f"s{index}"))
        assert made.flush(10)
        made.put(span("last"))
        assert made.flush(10)
        assert [name for _, _, name in sink.spans()] == [*(f"s{index}" for index in range(300)), "last"]
        assert sink.headers[0]["authorization"] == "Bearer x"
        assert sink.headers[0]["path"] == "/v1/traces"
        assert (made.sent, made.losses.snapshot()) == (301, {})


def test_gzip_bodies() -> None:
    with receiver() as sink, exporter(sink.endpoint, compression="gzip") as made:
        made.put(span())
        assert made.flush(10)
        assert sink.headers[0]["content-encoding"] == "gzip"
        request = ExportTraceServiceRequest()
        request.ParseFromString(gzip.decompress(sink.bodies[0]))
        assert request.resource_spans[0].scope_spans[0].spans[0].name == "s"


def test_429_waits_as_long_as_it_was_told_and_loses_nothing() -> None:
    with receiver((429, {"retry-after": "0.3"}), (503, {})) as sink, exporter(sink.endpoint) as made:
        made.put(span())
        assert made.flush(10)
        assert len(sink.attempts) == 3
        assert sink.attempts[1] - sink.attempts[0] >= 0.3
        assert len(sink.spans()) == 1
        assert made.losses.snapshot() == {}


def test_400_is_final_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with receiver((400, {}), (400, {})) as sink, exporter(sink.endpoint) as made, caplog.at_level(logging.ERROR):
        for _ in range(2):
            made.put(span())
            assert made.flush(10)
        made.put(span())
        assert made.flush(10)
        assert made.losses.snapshot() == {"refused": 2}
        assert sink.dropped() == "refused:2"
        assert len([entry for entry in caplog.records if "refused" in entry.message]) == 1


def test_a_receiver_that_comes_back_gets_everything() -> None:
    endpoint = closed_port()
    with exporter(endpoint) as made:
        made.put(span())
        until(lambda: made._failing)
        made._transport.__dict__.update(open_transport(Settings(endpoint=endpoint)).__dict__)
        with receiver() as sink:
            made._transport.__dict__.update(open_transport(Settings(endpoint=sink.endpoint)).__dict__)
            assert made.flush(10)
            assert len(sink.spans()) == 1


def test_a_full_buffer_drops_the_oldest_and_the_count_travels() -> None:
    with receiver() as sink:
        settings = Settings(endpoint=sink.endpoint, buffer_spans=100, interval_s=0.02)
        made = Exporter(settings, {"service.name": "t", "service.instance.id": "i"}, open_transport(settings))
        for index in range(1000):
            made.put(span(str(index)))
        assert made.losses.snapshot() == {"full": 900}
        made.start()
        assert made.flush(10)
        assert [name for _, _, name in sink.spans()] == [str(index) for index in range(900, 1000)]
        assert sink.dropped() == "full:900"
        assert made.sent + made.losses.total == 1000
        made.shutdown(1)


@pytest.mark.parametrize("kind", ["refuse", "hole", "nowhere"])
def test_shutdown_is_bounded_and_says_what_was_lost(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    hole = socket.socket()
    hole.bind(("127.0.0.1", 0))
    hole.listen()
    endpoint = {
        "refuse": closed_port(),
        "hole": f"http://127.0.0.1:{hole.getsockname()[1]}",
        "nowhere": "http://no-such-host.invalid:4318",
    }[kind]
    settings = Settings(endpoint=endpoint, interval_s=0.02)
    made = Exporter(settings, {"service.name": "t", "service.instance.id": "i"}, open_transport(settings))
    made.start()
    for _ in range(1000):
        made.put(span())
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        made.shutdown(1.0)
    assert time.monotonic() - began < 3
    assert made.losses.snapshot() == {"shutdown": 1000}
    assert "1000 spans could not be sent" in caplog.text
    hole.close()


def test_an_item_that_cannot_be_encoded_loses_only_itself() -> None:
    bad = span()
    bad.start_unix_ns = -1
    with receiver() as sink, exporter(sink.endpoint) as made:
        made.put(bad)
        made.put(span("good"))
        assert made.flush(10)
        assert [name for _, _, name in sink.spans()] == ["good"]
        assert made.losses.snapshot() == {"unencodable": 1}


def test_rejected_spans_of_a_partial_success_are_counted() -> None:
    from tailtrace.instrumentation.transport import _rejected_spans

    assert _rejected_spans(b"\x0a\x07\x08\xac\x02\x12\x02no") == 300
    assert _rejected_spans(b"") == 0
    assert _rejected_spans(b"\x0a\x04\x12\x02no") == 0

"""What is exported is, loaded again, what was stored."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailtrace.analytics.queries import run_sql
from tailtrace.cli import stored_traces
from tailtrace.cli.client import ApiClient
from tailtrace.cli.recordings import read_recording
from tailtrace.ingest.framing import frame
from tailtrace.ingest.receiver.otlp_json import to_protobuf
from tailtrace.ingest.store import Store

Run = Callable[..., Any]
ROWS = (
    "SELECT * EXCEPT ReceivedAt, toUnixTimestamp64Nano(Timestamp) AS ns, "
    "arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS event_ns FROM otel_traces ORDER BY TraceId, SpanId"
)


def text(target: Any, **attributes: str) -> None:
    for key, value in attributes.items():
        target.attributes.add(key=key).value.string_value = value


def recorded(traces: int, spans: int) -> bytes:
    """Two processes, two scopes, events, links, every kind and status, and a span that ends before it begins."""
    request = ExportTraceServiceRequest()
    start = time.time_ns() - 60 * 10**9
    for number in range(traces):
        for service in ("gateway", "engine"):
            process = request.resource_spans.add()
            text(process.resource, **{"service.name": service, "quote": 'it\'s \\ "☃"\n'})
            scope = process.scope_spans.add()
            scope.scope.name, scope.scope.version = f"scope.{service}", "1"
            for k in range(spans):
                span = scope.spans.add(
                    trace_id=number.to_bytes(16, "big", signed=False) if number else os.urandom(16),
                    span_id=os.urandom(8), name=f"work {k}", kind=k % 6, trace_state="a=b",
                )  # fmt: skip
                span.parent_span_id = os.urandom(8) if k else b""
                span.start_time_unix_nano = start + number * 1_000 + k
                span.end_time_unix_nano = span.start_time_unix_nano + (17 if k != 2 else -1)
                span.status.code, span.status.message = k % 3, "why" * (k % 3)
                span.attributes.add(key="n").value.int_value = k
                event = span.events.add(time_unix_nano=start + 7, name="first token")
                text(event, a="b")
                link = span.links.add(trace_id=os.urandom(16), span_id=os.urandom(8), trace_state="x=y")
                text(link, c="d")
    return request.SerializeToString()


@pytest.fixture
def served(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store behind the API's SQL."""

    def post(self: ApiClient, path: str, body: dict[str, Any]) -> Any:
        assert path == "sql"
        answer = run_sql(store, body["sql"], body["parameters"], limit=body["limit"], seconds=body["seconds"])
        return json.loads(json.dumps({"columns": answer.columns, "rows": answer.rows}))

    monkeypatch.setattr(ApiClient, "post", post)
    return store


def load(store: Store, folder: Path, *bodies: bytes) -> None:
    path = folder / f"{os.urandom(4).hex()}.otlp"
    path.write_bytes(b"".join(frame(body) + body for body in bodies))
    store.insert_segment("traces", path, path.name)


@pytest.mark.parametrize("name", ["out.json", "out.json.gz", "out.pb"])
def test_loading_an_export_gives_the_rows_that_were_exported(
    served: Store, tailtrace: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Small pages, so that a trace lies in several bodies and a group in several answers.
    for limit, value in {"_PAGE": 7, "_TRACES_A_QUERY": 2, "SPANS_A_BODY": 3}.items():
        monkeypatch.setattr(stored_traces, limit, value)
    load(served, tmp_path, recorded(5, 6))
    before = served.query(ROWS)
    assert len(before) == 60
    form = "protobuf" if name == "out.pb" else "json"
    done = tailtrace("export", str(tmp_path / name), "--format", form)
    assert (done.code, done.err) == (0, "60 spans\n")
    served.command("TRUNCATE TABLE otel_traces")
    bodies = [
        body.encode() if body.encoding == "protobuf" else to_protobuf("traces", body.encode()).body
        for body in read_recording(tmp_path / name)
    ]
    assert len(bodies) > 10
    load(served, tmp_path, *bodies)
    assert served.query(ROWS) == before


def test_one_body_of_protobuf_is_the_request_itself(served: Store, tailtrace: Run, tmp_path: Path) -> None:
    load(served, tmp_path, recorded(1, 3))
    assert tailtrace("export", str(tmp_path / "o.pb"), "--format", "protobuf").code == 0
    request = ExportTraceServiceRequest.FromString((tmp_path / "o.pb").read_bytes())
    assert {len(each.scope_spans[0].spans) for each in request.resource_spans} == {3}


def test_traces_are_chosen_by_service_time_and_id(served: Store, tailtrace: Run, tmp_path: Path) -> None:
    load(served, tmp_path, recorded(4, 2))
    out = tmp_path / "o.json.gz"
    ids = [row["id"] for row in served.query("SELECT DISTINCT TraceId AS id FROM otel_traces ORDER BY id LIMIT 2")]

    def exported(*options: str) -> list[str]:
        done = tailtrace("export", str(out), *options)
        assert done.code in (0, 4)
        lines = [json.loads(line) for line in gzip.decompress(out.read_bytes()).splitlines()]
        found = [
            span["traceId"]
            for body in lines
            for each in body["resourceSpans"]
            for scope in each["scopeSpans"]
            for span in scope["spans"]
        ]
        return sorted(set(found))

    assert exported("--trace", ids[0].upper(), "--trace", ids[1]) == ids
    assert len(exported("--service", "engine")) > 2
    assert exported("--service", "nobody' OR 1") == []
    assert exported("--since", "5s") == []
    assert exported("--until", "90s", "--since", "1h") == []
    assert len(exported("--limit", "1")) == 1
    assert exported("--trace", "f" * 32) == []


def test_a_trace_for_perfetto(tailtrace: Run, stub: Any, tmp_path: Path) -> None:
    events = {"traceEvents": [{"ph": "X"}], "otherData": {"shown": 1, "total": 2}}
    stub.json(f"/api/v1/requests/{'a' * 32}/chrome", events)
    out = tmp_path / "trace.json"
    done = tailtrace("export", str(out), "--format", "chrome", "--trace", "A" * 32, "--url", stub.url)
    assert (done.code, done.err) == (0, "1 of 2 spans\n")
    assert json.loads(out.read_text()) == events


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "chrome"), "one trace"),
        (("--trace", "x'"), "32 hex digits"),
        (("--since", "yesterday"), "Unix ns"),
    ],
)
def test_what_cannot_be_is_said(tailtrace: Run, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = tailtrace("export", str(tmp_path / "o"), *options)
    assert done.code == 2
    assert words in done.err

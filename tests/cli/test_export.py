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
import signal_samples as samples
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailtrace.analytics.queries import run_sql
from tailtrace.cli import stored_logs, stored_metrics, stored_pages, stored_steps, stored_traces
from tailtrace.cli.client import ApiClient
from tailtrace.cli.recordings import read_recording
from tailtrace.ingest.framing import frame
from tailtrace.ingest.receiver.checks import check
from tailtrace.ingest.receiver.limits import Limits
from tailtrace.ingest.receiver.otlp_json import to_protobuf
from tailtrace.ingest.store import Signal, Store

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


def load(store: Store, folder: Path, *bodies: bytes, signal: Signal = "traces") -> None:
    path = folder / f"{os.urandom(4).hex()}.otlp"
    path.write_bytes(b"".join(frame(body) + body for body in bodies))
    store.insert_segment(signal, path, path.name)


@pytest.mark.parametrize("name", ["out.json", "out.json.gz", "out.pb"])
def test_loading_an_export_gives_the_rows_that_were_exported(
    served: Store, tailtrace: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Small pages, so that a trace lies in several bodies and a group in several answers.
    for limit, value in {"PAGE": 7, "_TRACES_A_QUERY": 2, "SPANS_A_BODY": 3}.items():
        monkeypatch.setattr(stored_traces, limit, value)
    monkeypatch.setattr(stored_pages, "PAGE", 7)
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


def many_metrics(at: int) -> bytes:
    """Every kind of metric, at several minutes, of several processes and scopes, with values JSON has no word for."""
    request = ExportMetricsServiceRequest()
    for number in range(6):
        request.MergeFrom(samples.metrics(at + number * 40 * 10**9))
        resource = request.resource_metrics[-1]
        text(resource.resource, host=f"h{number % 2}", quote='it\'s \\ "☃"\n')
        text(resource.scope_metrics[0].scope, of="scope")
        kinds = resource.scope_metrics[0].metrics
        for value in (float("nan"), float("inf"), float("-inf"), 0.1 + number, 5e-324):
            kinds[0].gauge.data_points.add(time_unix_nano=at + number, as_double=value)
        kinds[2].histogram.data_points.add(time_unix_nano=at, count=2**63 + 1, bucket_counts=[2**63 + 1])
    return request.SerializeToString()


def many_logs(at: int) -> bytes:
    request = ExportLogsServiceRequest()
    for number in range(6):
        request.MergeFrom(samples.logs(at + number * 40 * 10**9))
        del request.resource_logs[-1].scope_logs[0].log_records[2]  # it has the time at which it is received
        text(request.resource_logs[-1].resource, host=f"h{number % 2}")
    return request.SerializeToString()


def many_steps(at: int) -> bytes:
    request = ExportTraceServiceRequest()
    for number in range(2):
        process = request.resource_spans.add()
        text(process.resource, **{"service.name": f"engine{number}", "host.id": "h", "service.instance.id": "i"})
        scope = process.scope_spans.add()
        scope.scope.name = "tailtrace.steps"
        for k in range(9):
            span = scope.spans.add(trace_id=os.urandom(16), span_id=os.urandom(8), name="step")
            span.start_time_unix_nano = at + k * 20 * 10**9
            span.end_time_unix_nano = span.start_time_unix_nano + k
            given = {"engine_id": f"h/{number}/0", "running": str(k), "prefill": "a:b:7,c:9", "preempted": "x,y",
                     "kv_usage": "0.3", "gpu_ns": "12"}  # fmt: skip
            text(span, **{f"tailtrace.{name}": value for name, value in given.items() if k or name == "engine_id"})
            text(span, other="kept")
    return request.SerializeToString()


TABLES = {
    "metrics": ["gauge", "sum", "histogram", "exp_histogram", "summary"],
    "logs": ["otel_logs"],
    "steps": ["engine_steps"],
}
TABLES["metrics"] = [f"otel_metrics_{kind}" for kind in TABLES["metrics"]]


@pytest.mark.parametrize("form", ["json", "protobuf"])
@pytest.mark.parametrize("stored", ["metrics", "logs", "steps"])
def test_loading_an_export_of_another_signal_gives_the_rows_that_were_exported(
    served: Store, tailtrace: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str, form: str
) -> None:
    monkeypatch.setattr(stored_pages, "PAGE", 7)
    for module, limit in ((stored_metrics, "POINTS"), (stored_logs, "RECORDS"), (stored_steps, "STEPS")):
        monkeypatch.setattr(module, f"{limit}_A_BODY", 3)
    made = {"metrics": many_metrics, "logs": many_logs, "steps": many_steps}[stored]
    signal: Signal = "logs" if stored == "logs" else "metrics" if stored == "metrics" else "traces"
    checked = check(signal, made(time.time_ns() - 1_500 * 10**9), Limits(), time.time_ns())
    assert not checked.rejected
    load(served, tmp_path, checked.body, signal=signal)

    def rows() -> list[str]:
        """As text: a value that is not a number equals none."""
        found = [
            f"{table} {row['line']}"
            for table in TABLES[stored]
            for row in served.query(f"SELECT toString(tuple(* EXCEPT ReceivedAt)) AS line FROM {table}")
        ]
        return sorted(found)

    before = rows()
    assert len(before) == {"metrics": 66, "logs": 12, "steps": 18}[stored]
    out = tmp_path / "out.gz"
    done = tailtrace("export", str(out), "--format", form, "--signal", stored)
    assert done.code == 0
    assert done.err.startswith(f"{len(before)} ")
    for table in TABLES[stored]:
        served.command(f"TRUNCATE TABLE {table}")
    for body in read_recording(out):
        assert body.signal == signal
        sent = body.encode() if body.encoding == "protobuf" else to_protobuf(signal, body.encode()).body
        again = check(signal, sent, Limits(), time.time_ns())
        assert not again.rejected
        load(served, tmp_path, again.body, signal=signal)
    assert rows() == before


def test_signals_in_one_file_by_service_time_and_trace(served: Store, tailtrace: Run, tmp_path: Path) -> None:
    at = time.time_ns() - 1_500 * 10**9
    load(served, tmp_path, recorded(2, 2))
    load(served, tmp_path, many_metrics(at), signal="metrics")
    load(served, tmp_path, many_logs(at), signal="logs")
    out = tmp_path / "o.pb"
    every = ("--signal", "traces", "--signal", "metrics", "--signal", "logs", "--format", "protobuf")
    assert tailtrace("export", str(out), *every).err == "8 spans, 66 points, 12 log records\n"
    assert [body.signal for body in read_recording(out)] == ["traces"] + ["metrics"] * 5 + ["logs"]
    logs = ("--signal", "logs")
    assert tailtrace("export", str(out), *logs, "--trace", samples.TRACE_ID.hex()).err == "6 log records\n"
    assert tailtrace("export", str(out), *logs, "--until", str(at + 50 * 10**9)).err == "4 log records\n"
    assert tailtrace("export", str(out), *logs, "--service", "nobody' OR 1").code == 4
    refused = tailtrace("export", str(out), "--signal", "metrics", "--trace", samples.TRACE_ID.hex())
    assert (refused.code, "belong to no trace" in refused.err) == (2, True)


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

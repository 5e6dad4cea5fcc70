"""Golden: every engine's own spans, from OTLP/JSON through store and job to literal stage times."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from span_by_span import read_trace

from tailtrace import ingest, stages
from tailtrace.analytics.engines import ENGINES, engine_of
from tailtrace.analytics.engines.notes import sql
from tailtrace.analytics.engines.units import MILLISECOND, SECOND, rust_duration_ns, to_ns
from tailtrace.analytics.jobs.requests import run_requests
from tailtrace.analytics.judge import judge_spans
from tailtrace.analytics.queries.neighbourhood import neighbourhood
from tailtrace.cli.recordings import read_recording
from tailtrace.ingest.receiver.otlp_json import to_protobuf
from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import SpanData, encode_traces
from tests.analytics.feed import feed_bodies, store_now_ms

DATA = Path(__file__).parent.parent / "data" / "engines"
MS = 1_000_000


def rows_of(store: Store, folder: Path, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows by the first two digits of the trace id and service; and the request page must say the same."""
    body = to_protobuf("traces", (DATA / f"{name}.json").read_bytes())
    assert not body.rejected
    feed_bodies(store, folder, [body.body])
    run_requests(store, now_ms=store_now_ms(store) + 11_000)
    rows = {(row["TraceId"][:2], row["Service"]): row for row in store.query("SELECT * FROM requests FINAL")}
    for row in rows.values():
        [judged] = [j for j in judge_spans(read_trace(store, row["TraceId"])) if j.row["SpanId"] == row["SpanId"]]
        assert stage_ms(dict(judged.row)) == stage_ms(row)
        for key in ("TtftNs", "LastTokenNs", "Outcome", "Kind", "InputTokens", "OutputTokens", "Model", "Engine"):
            assert judged.row[key] == row[key], key
    return rows


def stage_ms(row: dict[str, Any]) -> dict[str, float]:
    names = {f"{stage.column}Ns": stage.name for stage in stages.STAGES} | {"UnexplainedNs": "unexplained"}
    found = {name: row[column] / MS for column, name in names.items() if row[column]}
    assert sum(found.values()) == pytest.approx(row["DurationNs"] / MS, abs=1e-6)
    return found


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    """TTFT and last token in ms, tokens in and out, outcome, kind."""
    offsets = [None if row[key] is None else row[key] / MS for key in ("TtftNs", "LastTokenNs")]
    return *offsets, row["InputTokens"], row["OutputTokens"], row["Outcome"], row["Kind"]


def test_sglang(store: Store, tmp_path: Path) -> None:
    rows = rows_of(store, tmp_path, "sglang")
    served, aborted = rows["a1", "sglang"], rows["a2", "sglang"]
    assert stage_ms(served) == {
        "tokenize": 3, "engine_submit": 4, "queue": 12, "prefill": 14, "decode": 50, "preempted": 12, "unexplained": 5,
    }  # fmt: skip
    assert told(served) == (30, 96, 512, 41, "ok", "request")
    assert (served["Model"], served["Engine"], served["CachedTokens"]) == ("llama", "sglang", 128)
    assert served["DerivedStages"] == ["preempted"]
    assert stage_ms(aborted) == {"tokenize": 4, "queue": 34, "unexplained": 2}
    assert told(aborted) == (None, None, None, None, "error", "request")


def test_tgi(store: Store, tmp_path: Path) -> None:
    rows = rows_of(store, tmp_path, "tgi")
    served = rows["b1", "text-generation-inference.router"]
    assert stage_ms(served) == {
        "parse": 1.5, "queue": 12, "prefill": 20, "decode": 50, "batch_wait": 14, "app": 2.5,
    }  # fmt: skip
    assert told(served) == (34, 97, None, None, "ok", "request")
    batch = rows["b2", "text-generation-inference.router"]
    assert batch["Kind"] == "job"


def test_batches_of_tgi_are_the_steps_of_the_requests_they_link_to(store: Store, tmp_path: Path) -> None:
    """Two requests that share one of three batches; the third request's batch is its own."""
    start = 1_790_000_000 * 1000 * MS
    first, second, third = ("11" * 16, "22" * 16, "33" * 16)

    def span(trace: str, number: int, name: str, at: int, end: int, links: list[str], **more: Any) -> SpanData:
        return SpanData(
            trace_id=bytes.fromhex(trace), span_id=number.to_bytes(8, "big"), parent_span_id=b"", name=name, kind=1,
            start_unix_ns=start + at * MS, end_unix_ns=start + end * MS, attributes=more,
            links=[(bytes.fromhex(link), b"\1" * 8) for link in links],
        )  # fmt: skip

    spans = [span(trace, 1 + k, "generate_stream", 0, 100, []) for k, trace in enumerate((first, second, third))]
    spans += [
        span("b1" * 16, 11, "batch", 10, 30, [first], batch_size=1),
        span("b2" * 16, 12, "batch", 30, 40, [first, second], batch_size=2),
        span("b3" * 16, 13, "batch", 40, 55, [third], batch_size=1),
    ]
    resource = {"service.name": "router"}
    feed_bodies(store, tmp_path, [encode_traces(resource, spans, scope="opentelemetry-otlp")])
    run_requests(store, now_ms=store_now_ms(store) + 11_000)
    found = neighbourhood(store, first)
    lanes = {
        lane.lane: [
            (int(at) - start, value)
            for at, value in zip(lane.lines[0].times_unix_ns, lane.lines[0].values, strict=True)
        ]
        for lane in found.steps.lanes
    }
    assert lanes == {"running": [(10 * MS, 1), (30 * MS, 2)], "step_time": [(10 * MS, 0.02), (30 * MS, 0.01)]}
    assert [one.trace_id for one in found.neighbours] == [second]
    assert [one.trace_id for one in neighbourhood(store, third).neighbours] == []


def test_triton(store: Store, tmp_path: Path) -> None:
    [served] = rows_of(store, tmp_path, "triton").values()
    assert stage_ms(served) == {
        "net_in": 2, "parse": 1, "queue": 10, "dispatch": 2, "forward": 25, "postprocess": 3, "stream_out": 3,
        "app": 1, "unexplained": 3,
    }  # fmt: skip
    assert told(served) == (None, None, None, None, "ok", "request")
    assert (served["Model"], served["Engine"]) == ("resnet", "triton")
    assert set(served["DerivedStages"]) == {
        "net_in", "parse", "queue", "dispatch", "forward", "postprocess", "stream_out",
    }  # fmt: skip


def test_dynamo_over_vllm(store: Store, tmp_path: Path) -> None:
    rows = rows_of(store, tmp_path, "dynamo")
    front = rows["d1", "frontend"]
    assert stage_ms(front) == {
        "route": 6, "queue": 6, "prefill": 15, "decode": 57, "app": 9, "unexplained": 7,
    }  # fmt: skip
    assert told(front) == (40, None, 300, 21, "ok", "request")
    assert front["Model"] == "llama"
    assert rows["d1", "worker"]["OutputTokens"] == 21
    assert rows["d1", "worker"]["Engine"] == "vllm"


def test_dynamo_lifecycle(store: Store, tmp_path: Path) -> None:
    row = rows_of(store, tmp_path, "dynamo")["d2", "frontend"]
    assert stage_ms(row) == {
        "tokenize": 5, "admission": 4, "dispatch": 3, "prefill": 27, "decode": 50, "stream_out": 6, "unexplained": 5,
    }  # fmt: skip
    assert row["Outcome"] == "timeout"


def test_dynamo_request_trace(store: Store, tmp_path: Path) -> None:
    for body in read_recording(DATA / "dynamo_requests.jsonl"):
        feed_bodies(store, tmp_path, [to_protobuf(body.signal, body.encode()).body])
    run_requests(store, now_ms=store_now_ms(store) + 11_000)
    full, sparse = store.query("SELECT * FROM requests FINAL ORDER BY Start")
    assert stage_ms(full) == {"queue": 10, "prefill": 20, "decode": 60, "unexplained": 10}
    assert told(full) == (40, 100, 64, 21, "ok", "request")
    assert (full["CachedTokens"], full["Model"], full["RequestId"]) == (32, "llama", "r-1")
    assert stage_ms(sparse) == {"unexplained": 50}
    assert told(sparse) == (None, None, None, 4, "ok", "request")


def test_litellm(store: Store, tmp_path: Path) -> None:
    rows = rows_of(store, tmp_path, "litellm")
    second, after, legacy = (rows[trace, "litellm"] for trace in ("e1", "e2", "e3"))
    assert stage_ms(second) == {
        "auth": 8, "guardrail": 3, "cache_lookup": 1, "route": 2, "external": 83, "unexplained": 3,
    }  # fmt: skip
    assert told(second) == (None, None, 12, 30, "ok", "request")
    assert second["Model"] == "gpt-4"
    assert stage_ms(after) == {"finalize": 4}
    assert after["Kind"] == "job"
    assert stage_ms(legacy) == {"guardrail": 2, "dispatch": 52, "app": 2, "unexplained": 4}
    assert told(legacy) == (None, None, 7, 9, "ok", "request")


def test_tensorrt_llm(store: Store, tmp_path: Path) -> None:
    rows = rows_of(store, tmp_path, "tensorrt_llm")
    assert stage_ms(rows["f1", "trtllm"]) == {"queue": 10, "unexplained": 90}
    assert told(rows["f1", "trtllm"]) == (25, None, 64, 32, "ok", "request")
    assert stage_ms(rows["f2", "trtllm"]) == {"unexplained": 50}
    assert told(rows["f2", "trtllm"]) == (None, None, 64, None, "ok", "request")
    assert rows["f2", "trtllm"]["Flags"] == []


def test_ray_serve(store: Store, tmp_path: Path) -> None:
    [row] = rows_of(store, tmp_path, "ray_serve").values()
    assert stage_ms(row) == {"route": 4, "app": 52, "unexplained": 4}
    assert row["Outcome"] == "ok"


def test_llm_d(store: Store, tmp_path: Path) -> None:
    rows = rows_of(store, tmp_path, "llm_d")
    assert stage_ms(rows["ab", "gateway"]) == {"route": 6, "prefill": 25, "decode": 43, "app": 3, "unexplained": 3}
    assert told(rows["ab", "gateway"])[0] is None
    assert told(rows["ab", "pd-proxy"])[0] == 30


def test_vllm_before_and_after(store: Store, tmp_path: Path) -> None:
    rows = rows_of(store, tmp_path, "vllm_versions")
    assert stage_ms(rows["ac", "vllm"]) == {"queue": 10, "prefill": 20, "decode": 65, "unexplained": 5}
    assert told(rows["ac", "vllm"]) == (30, 95, 9, 14, "ok", "request")
    assert stage_ms(rows["ad", "vllm"]) == {"queue": 11, "prefill": 18, "decode": 56, "unexplained": 15}
    assert rows["ad", "vllm"]["DerivedStages"] == []
    # V1 under its first scope name, up to 0.15: the same keys, placed by the first token.
    assert stage_ms(rows["af", "vllm"]) == {"queue": 12, "prefill": 30, "decode": 60, "unexplained": 18}
    assert told(rows["af", "vllm"]) == (50, 110, 33, 21, "ok", "request")


def test_a_unit_belongs_to_the_key_whatever_the_size_of_the_number() -> None:
    values = np.array([0.0, 1e-6, 0.5, 40.0, 90_000.0, -1.0, math.nan, math.inf, 1e30])
    known = [True] * 5 + [False] * 4
    for unit in (SECOND, MILLISECOND):
        ns, has = to_ns(values, unit)
        assert has.tolist() == known
        assert ns[:5].tolist() == [round(value * unit) for value in values[:5].tolist()]
        assert ns[5:].tolist() == [0] * 4


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1.2s", 1_200_000_000), ("12.3ms", 12_300_000), ("45µs", 45_000), ("850ns", 850), ("0ns", 0),
        ("1.234567891s", 1_234_567_891), ("None", -1), ("", -1), ("12", -1), ("1m", -1), ("-1s", -1), ("1e3s", -1),
    ],
)  # fmt: skip
def test_rust_durations(text: str, ns: int) -> None:
    assert rust_duration_ns(text) == ns


def test_the_view_of_the_inbox_writes_the_same_notes() -> None:
    schema = (Path(ingest.__file__).parent / "schema" / "0050_span_notes.sql").read_text()
    assert "".join(sql("otel_traces").split()) in "".join(schema.split())


def test_every_named_stage_is_in_the_vocabulary() -> None:
    for engine in ENGINES:
        assert set(engine.span_stages.values()) <= set(stages.NAMES)
        assert {stage for _, stage in engine.prefix_stages} <= set(stages.NAMES)


def test_a_shared_scope_is_told_by_the_name() -> None:
    def name(scope: str, span: str) -> str | None:
        engine = engine_of(scope, span)
        return engine.name if engine else None

    assert name("opentelemetry-otlp", "generate") == "tgi"
    assert name("opentelemetry-otlp", "something") is None
    assert name("my-service", "generate") is None
    assert name("my-frontend", "kv_router.schedule") == "dynamo"
    assert name("vllm.tracing.otel", "http-request") == "vllm"
    assert name("tailtrace", "http-request") is None

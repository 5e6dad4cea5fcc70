"""Golden: what a running vLLM exported, from the wire to the rows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from span_by_span import read_trace

from tailtrace.analytics.jobs.requests import run_requests
from tailtrace.analytics.judge import judge_spans
from tailtrace.ingest.store import Store
from tests.analytics.feed import feed_bodies, store_now_ms, vllm_bodies

ROWS = "SELECT * FROM requests FINAL ORDER BY TraceId, SpanId"


@pytest.fixture
def judged(store: Store, tmp_path: Path) -> Store:
    for body in vllm_bodies():
        feed_bodies(store, tmp_path, [body])
    run_requests(store, now_ms=store_now_ms(store) + 11_000)
    return store


def seconds(attributes: dict[str, str], key: str) -> int:
    return round(float(attributes[f"gen_ai.latency.{key}"]) * 1e9)


def test_a_request_per_engine_request_and_the_start_up(judged: Store) -> None:
    rows = judged.query(ROWS)
    requests = [row for row in rows if row["Kind"] == "request"]
    assert len(requests) == 78
    assert sum(row["N"] == 2 for row in requests) == 8
    assert sum(row["N"] for row in requests) == 86
    assert all({"parent_missing", "engine_ttft"} <= set(row["Flags"]) for row in requests)
    assert all(row["IsRoot"] and row["Engine"] == "vllm" and row["TtftNs"] > 0 for row in requests)
    [startup] = [row for row in rows if row["Kind"] == "startup"]
    assert startup["DurationNs"] == 26_999_229_347
    assert startup["ModelLoadNs"] == 1_047_905_054
    assert startup["EngineInitNs"] == 26_999_229_347 - 1_047_905_054
    assert startup["UnexplainedNs"] == 0


def test_stage_times_are_those_that_the_engine_measured(judged: Store) -> None:
    for row in judged.query("SELECT * FROM requests FINAL WHERE Kind = 'request'"):
        span = next(s for s in read_trace(judged, row["TraceId"]) if s.span_id == row["SpanId"])
        attributes = dict(span.attributes)
        ttft = seconds(attributes, "time_to_first_token")
        assert row["QueueNs"] == pytest.approx(seconds(attributes, "time_in_queue"), abs=1_000)
        assert row["PrefillNs"] == pytest.approx(seconds(attributes, "time_in_model_prefill"), abs=1_000)
        decode = min(seconds(attributes, "time_in_model_decode"), row["DurationNs"] - ttft)
        assert row["DecodeNs"] == pytest.approx(decode, abs=1_000)
        assert sorted(row["DerivedStages"]) == ["decode", "prefill", "queue"]
        if row["N"] == 1:
            assert row["TtftNs"] == pytest.approx(ttft, abs=1_000)
            assert row["OutputTokens"] == int(attributes["gen_ai.usage.completion_tokens"])


def test_the_share_that_stays_unexplained(judged: Store) -> None:
    shares = sorted(row["UnexplainedNs"] / row["DurationNs"] for row in judged.query(ROWS) if row["Kind"] == "request")
    assert shares[math.ceil(0.50 * 78) - 1] == pytest.approx(0.05, abs=0.02)
    assert shares[math.ceil(0.95 * 78) - 1] == pytest.approx(0.50, abs=0.05)


def test_loading_twice_changes_nothing(judged: Store, tmp_path: Path) -> None:
    before = judged.query(ROWS)
    sums_of = "sum(N) AS n, sum(SumNs) AS ns, sum(QueueNs) AS queue"
    rollup = f"SELECT Metric, {sums_of} FROM rollup_1m GROUP BY Metric ORDER BY Metric"
    sums = judged.query(rollup)
    for body in vllm_bodies():
        feed_bodies(judged, tmp_path, [body])
    report = run_requests(judged, now_ms=store_now_ms(judged) + 60_000)
    assert report.reopened == 79
    assert judged.query(ROWS) == before
    assert judged.query(rollup) == sums


def test_the_request_page_sees_the_same(judged: Store) -> None:
    for row in judged.query("SELECT TraceId, SpanId, DurationNs, QueueNs, UnexplainedNs FROM requests FINAL"):
        [one] = [j for j in judge_spans(read_trace(judged, row["TraceId"])) if j.row["SpanId"] == row["SpanId"]]
        assert {key: one.row[key] for key in row} == row

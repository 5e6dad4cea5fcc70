"""Log lines and engine metrics of a window: joined by service and by trace, counted, and never more than clues."""

from __future__ import annotations

import pytest
from seeding import SECOND, T0, insert_requests, request

from tailtrace.analytics.queries.clues import Clues, clues, more_lines, readings_of
from tailtrace.analytics.queries.why import LAST_STEP, last_step, why
from tailtrace.ingest.store import Store

WINDOW = (T0 + 3600 * SECOND, T0 + 4500 * SECOND)
REFERENCE = (T0, WINDOW[0])


def insert_logs(store: Store, lines: list[tuple[int, str, int, str, str, str]]) -> None:
    """(ns after T0, service, severity number, severity text, trace id, body)."""
    values = ", ".join(
        f"(fromUnixTimestamp64Nano({T0 + at}), '{service}', {number}, '{text}', '{trace}', '{body}')"
        for at, service, number, text, trace, body in lines
    )
    store.command(
        "INSERT INTO otel_logs (Timestamp, ServiceName, SeverityNumber, SeverityText, TraceId, Body) VALUES " + values
    )


def insert_metric(store: Store, name: str, values: list[tuple[int, float]], kind: str = "gauge") -> None:
    extra = ("StartTimeUnix", f", fromUnixTimestamp64Nano({T0})") if kind == "sum" else ("", "")
    rows = ", ".join(
        f"('api', '{name}', fromUnixTimestamp64Nano({T0 + at}), {value}{extra[1]})" for at, value in values
    )
    columns = "ServiceName, MetricName, TimeUnix, Value" + (f", {extra[0]}" if extra[0] else "")
    store.command(f"INSERT INTO otel_metrics_{kind} ({columns}) VALUES {rows}")


def asked(store: Store) -> Clues:
    return clues(store, "api", REFERENCE, WINDOW)


def test_lines_of_the_service_and_of_its_requests_count_by_what_they_say(store: Store) -> None:
    insert_requests(store, [request(k, duration_ns=SECOND, end_ns=T0 + 3700 * SECOND) for k in range(3)])
    during, before = 3650 * SECOND, 10 * SECOND
    insert_logs(
        store,
        [
            *[(during + k, "api", 17, "ERROR", "", f"slot {k} of \"x{k}\" lost") for k in range(8)],
            *[(during + k, "db", 0, "warning", f"{k:032x}", f"lock held for {k} ms") for k in range(3)],
            (during, "db", 17, "ERROR", "f" * 32, "a request of somebody else"),
            (during, "api", 9, "INFO", "", "started"),
            (before, "api", 17, "ERROR", "", "slot 99 of \"y\" lost"),
        ],
    )  # fmt: skip
    told = asked(store)
    assert (told.seen, told.errors, told.errors_before, told.warnings, told.warnings_before) == (True, 8, 1, 3, 0)
    first, second = told.patterns
    assert (first.severity, first.service, first.pattern, first.n, first.before) == (
        "error",
        "api",
        "slot # of # lost",
        8,
        1,
    )
    assert (second.service, second.pattern, second.traced) == ("db", "lock held for # ms", 3)
    assert second.trace_id in {f"{k:032x}" for k in range(3)}
    (finding,) = told.findings
    assert (finding.metric, finding.value, finding.threshold) == ("error log lines", 8.0, 0.25)
    step = last_step(told)
    assert (step.step, step.state, step.share, step.note) == (LAST_STEP, "in", 0.0, "8 errors, 3 warnings")


def test_quiet_logs_rule_out_and_no_logs_are_no_data(store: Store) -> None:
    assert last_step(asked(store)).state == "no_data"
    insert_logs(store, [(3650 * SECOND, "api", 9, "INFO", "", "started")])
    told = asked(store)
    assert (told.seen, told.patterns, told.findings) == (True, [], [])
    assert last_step(told).state == "out"


def test_engine_metrics_are_told_under_their_canonical_names(store: Store) -> None:
    insert_metric(store, "vllm:num_requests_waiting", [(60 * SECOND, 2.0), (3700 * SECOND, 12.0)])
    insert_metric(store, "vllm:kv_cache_usage_perc", [(60 * SECOND, 0.4), (3700 * SECOND, 0.97)])
    insert_metric(store, "vllm:gpu_cache_usage_perc", [(60 * SECOND, 0.1), (3700 * SECOND, 0.1)])
    counted = [(60 * SECOND, 5.0), (3540 * SECOND, 5.0), (3700 * SECOND, 5.0), (3820 * SECOND, 25.0)]
    insert_metric(store, "vllm:num_preemptions_total", counted, "sum")
    told = asked(store)
    assert {one.metric: (one.before, one.during) for one in told.readings} == {
        "queue_depth": (2.0, 12.0), "kv_usage": (0.4, 0.97), "preemptions": (0.0, pytest.approx(10.0)),
    }  # fmt: skip
    assert [one.metric for one in told.findings] == [
        "engine's own queue_depth, mean", "engine's own kv_usage, mean", "preemptions a minute",
    ]  # fmt: skip


def test_the_diagnosis_ends_with_the_clues_and_gives_them_no_time(store: Store) -> None:
    insert_requests(
        store,
        [
            request(k, duration_ns=(100 + 100 * (k >= 360)) * 1_000_000, end_ns=T0 + k * 10 * SECOND, AuthNs=k % 7)
            for k in range(450)
        ],
    )
    insert_logs(store, [(3700 * SECOND + k, "api", 17, "ERROR", "", "refused") for k in range(9)])
    found = why(store, "api", *WINDOW)
    assert found.steps[-1].step == LAST_STEP
    assert found.steps[-1].state == "in"
    assert sum(step.share for step in found.steps) == pytest.approx(1.0)
    assert found.clues is not None
    assert found.clues.patterns[0].pattern == "refused"


@pytest.mark.parametrize(
    ("n", "expected", "more"), [(4, 0.0, False), (5, 0.0, True), (30, 10.0, True), (29, 10.0, False)]
)
def test_more_lines_than_the_reference_lets_expect(n: int, expected: float, more: bool) -> None:
    assert (more_lines("error", n, expected) is not None) is more


def test_a_metric_of_one_side_only_has_no_other(store: Store) -> None:
    (one,) = readings_of([{"name": "running", "unit": "1", "former": 1, "now": True, "value": 3.0}])
    assert (one.before, one.during) == (None, 3.0)

"""From stored rows to answers: the job, the diagnosis, GPU idle and the verdict of one request."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from seeding import SECOND, insert_requests, request

from tailtrace.analytics.jobs.verdicts import WINDOW_NS, run_verdicts
from tailtrace.analytics.queries import get_request
from tailtrace.analytics.queries.gpu_idle import gpu_idle
from tailtrace.analytics.queries.verdicts import verdicts
from tailtrace.analytics.queries.why import LAST_STEP, ORDER, why
from tailtrace.analytics.verdicts.read import read_counters
from tailtrace.dashboard import create_app
from tailtrace.errors import Rejected
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store
from tailtrace.stages import NAMES

MS = 1_000_000
START = 1_790_000_000 * SECOND // WINDOW_NS * WINDOW_NS


def feed(store: Store, *, slow_from: int, count: int = 450) -> list[dict[str, Any]]:
    """A request every ten seconds of `api`; from number `slow_from` on its authentication takes 400 ms more."""
    rows = [
        request(
            n + 1,
            duration_ns=(500 + 400 * (n >= slow_from) + n % 7) * MS,
            end_ns=START + n * 10 * SECOND + SECOND,
            AuthNs=(5 + 400 * (n >= slow_from) + n % 7) * MS,
            DecodeNs=400 * MS,
            TtftNs=(100 + 400 * (n >= slow_from)) * MS,
            AuthTtftNs=(5 + 400 * (n >= slow_from)) * MS,
            InputTokens=100,
            OutputTokens=50,
            GpuUuids="GPU-a",
            Replica="r",
            HostId="h",
        )
        for n in range(count)
    ]
    insert_requests(store, rows)
    return rows


def test_why_goes_through_the_order_of_diagnosis(store: Store) -> None:
    feed(store, slow_from=360)
    answer = why(store, "api", START + 3600 * SECOND, START + 4500 * SECOND)
    assert (answer.state, answer.goal, answer.slow_part) == ("slower", "online", "first_token")
    assert answer.verdict is not None
    assert (answer.verdict.cause, answer.verdict.confidence) == ("auth_dependency", "high")
    assert answer.excess_ns == pytest.approx(400 * MS, rel=0.02)
    assert [step.step for step in answer.steps] == [*(name for name, *_ in ORDER), LAST_STEP]
    assert [step.state for step in answer.steps[:4]] == ["in", "out", "no_data", "no_data"]
    assert sum(step.share for step in answer.steps) == pytest.approx(1.0)
    assert sum(cause.ns for cause in answer.causes) == pytest.approx(answer.excess_ns, abs=len(answer.causes))
    assert answer.missing == ["engine steps", "GPU counters", "host counters"]


def test_a_quiet_window_is_as_before_and_an_empty_one_is_refused(store: Store) -> None:
    feed(store, slow_from=10_000)
    answer = why(store, "api", START + 3600 * SECOND, START + 4500 * SECOND)
    assert (answer.state, answer.verdict, answer.excess_ns) == ("as_before", None, 0)
    assert why(store, "nobody", START, START + SECOND).state == "too_few"
    with pytest.raises(Rejected, match="window is empty"):
        why(store, "api", START, START)


def test_the_job_run_twice_leaves_the_same_windows(store: Store) -> None:
    feed(store, slow_from=360)
    end = START + 4500 * SECOND
    first = run_verdicts(store, newest_ns=end)
    assert (first.windows, first.behind) == (4, True)
    while run_verdicts(store, newest_ns=end).windows:
        pass
    kept = verdicts(store, START, end, everything=True)
    store.command("TRUNCATE TABLE watermarks")
    while run_verdicts(store, newest_ns=end).windows:
        pass
    assert verdicts(store, START, end, everything=True) == kept
    assert kept.total == len(kept.verdicts) == 5
    (slow,) = verdicts(store, START, end).verdicts
    assert (slow.state, slow.since_unix_ns) == ("slower", str(START + 3600 * SECOND))
    assert slow.verdict is not None
    assert slow.verdict["cause"] == "auth_dependency"


def test_gpus_without_counters_have_no_data_and_still_sum_to_the_window(store: Store) -> None:
    feed(store, slow_from=360)
    answer = gpu_idle(store, "api", START, START + 600 * SECOND)
    assert (answer.gpus, answer.gpu_ns) == (1, 600 * SECOND)
    assert [(total.state, total.ns) for total in answer.totals] == [("no_data", 600 * SECOND)]
    assert answer.missing == ["GPU counters", "engine steps"]


def test_one_request_against_the_hour_before_it(store: Store) -> None:
    rows = feed(store, slow_from=449)
    slow = get_request(store, rows[-1]["TraceId"]).verdict
    assert slow is not None
    assert slow.verdict is not None
    assert (slow.state, slow.verdict.cause) == ("slower", "auth_dependency")
    assert slow.usual_ns == pytest.approx(503 * MS, rel=0.01)
    assert slow.excess_ns == pytest.approx(400 * MS, rel=0.02)
    usual = get_request(store, rows[-2]["TraceId"]).verdict
    assert usual is not None
    assert (usual.state, usual.verdict) == ("as_usual", None)
    early = get_request(store, rows[3]["TraceId"]).verdict
    assert early is not None
    assert early.state == "too_few"


def test_processes_of_both_namespaces_are_read_apart(store: Store) -> None:
    stamp, text = pa.timestamp("ns", "UTC"), pa.map_(pa.string(), pa.string())
    rows = [("inside", 1.0, 5), ("outside", 0.0, 5), ("inside", 1.0, 25), ("outside", 2.0, 25)]
    columns = {
        "MetricName": ["tailtrace.gpu.processes"] * 4,
        "TimeUnix": pa.array([START + at * SECOND for _, _, at in rows], stamp),
        "Value": [value for _, value, _ in rows],
        "Attributes": pa.array([[("hw.id", "GPU-a"), ("tailtrace.namespace", name)] for name, _, _ in rows], text),
    }
    store.insert_arrow("otel_metrics_gauge", pa.table(columns))
    read = read_counters(store, START, START + 60 * SECOND, ["GPU-a"])
    assert read.attributes("tailtrace.gpu.processes", "GPU-a") == {"inside": 1.0, "outside": 1.0}


def test_over_the_api(store: Store, settings: ServerSettings) -> None:
    feed(store, slow_from=360)
    client = TestClient(create_app(store, settings), base_url="http://127.0.0.1:8050")
    answer = client.get("/api/v1/why", params={"service": "api", "range": "15m"}).json()
    assert answer["verdict"]["cause"] == "auth_dependency"
    assert set(answer["verdict"]) == {
        "cause", "share", "confidence", "window", "evidence", "missing", "alternatives", "reason",
    }  # fmt: skip
    assert set(answer["verdict"]["evidence"][0]) == {"metric", "value", "threshold", "source"}
    idle = client.get("/api/v1/gpu-idle", params={"service": "api", "range": "15m"}).json()
    assert sum(total["ns"] for total in idle["totals"]) == idle["gpu_ns"]
    assert client.get("/api/v1/verdicts").json() == {"verdicts": [], "total": 0, "next": None}
    assert client.get("/api/v1/why", params={"service": "api", "range": "soon"}).status_code == 400


def test_every_step_of_the_diagnosis_names_known_stages() -> None:
    assert {stage for _, stages, _, _ in ORDER for stage in stages} <= set(NAMES)

"""The job: settling, re-opening, running twice, dying half-way, outages; rows and rollups always agree."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailtrace import stages
from tailtrace.analytics.freshness import complete_until, watermark_ns
from tailtrace.analytics.jobs import inbox, progress
from tailtrace.analytics.jobs import requests as job
from tailtrace.analytics.jobs.requests import run_requests
from tailtrace.analytics.jobs.trim import trim_inbox
from tailtrace.analytics.queries.waterfall import waterfall
from tailtrace.analytics.trace import Span
from tailtrace.ingest.store import Store
from tests.analytics.feed import feed, feed_together, store_now_ms

MS = 1_000_000
BASE_NS = 1_796_000_000_000_000_000
COLUMNS = [f"{stage.column}Ns" for stage in stages.REQUEST_STAGES] + ["UnexplainedNs"]


def trace_id(k: int) -> str:
    return f"{k * 0x9E3779B97F4A7C15 % (1 << 128):032x}"


def request(k: int, *, start_ms: int = 0, length_ms: int = 100, service: str = "api", **attributes: str) -> list[Span]:
    """A request of one service: auth, then queue, then a gap."""
    start = BASE_NS + start_ms * MS
    root = Span(
        trace_id(k), f"{k * 8 + 1:016x}", "", "POST /v1", "Server", service, start, start + length_ms * MS, attributes
    )
    auth = replace(
        root, span_id=f"{k * 8 + 2:016x}", parent_span_id=root.span_id, kind="Internal", name="auth",
        end_unix_ns=start + 10 * MS, attributes={"tailtrace.stage": "auth"},
    )  # fmt: skip
    queue = replace(
        auth, span_id=f"{k * 8 + 3:016x}", name="queue", start_unix_ns=start + 20 * MS, end_unix_ns=start + 50 * MS,
        attributes={"tailtrace.stage": "queue"},
    )  # fmt: skip
    return [root, auth, queue]


def run(store: Store, later_ms: int = 0) -> job.JobReport:
    return run_requests(store, now_ms=store_now_ms(store) + later_ms)


def rows(store: Store) -> list[dict[str, Any]]:
    return store.query("SELECT * FROM requests FINAL ORDER BY TraceId, SpanId")


def assert_rollups_agree(store: Store) -> None:
    """Every tier holds exactly the sums of the rows."""
    weighted = ", ".join(f"sum(Sign * toInt64(SampleWeight) * toInt64({c})) AS {c}" for c in COLUMNS)
    [expected] = store.query(
        "SELECT sum(Sign * toInt64(SampleWeight)) AS N, "
        f"sum(Sign * toInt64(SampleWeight) * toInt64(DurationNs)) AS SumNs, {weighted} "
        "FROM requests WHERE Kind = 'request' AND NOT has(Flags, 'clock_fault')"
    )
    for table in ("rollup_1m", "rollup_1h", "rollup_1d", "strata_5m", "strata_1d"):
        sums = ", ".join(f"sum({c}) AS {c}" for c in ("N", "SumNs", *COLUMNS))
        [got] = store.query(f"SELECT {sums} FROM {table} WHERE Metric = 'duration'")
        assert got == expected, table


def test_a_settled_trace_is_judged_and_an_unsettled_one_waits(store: Store, tmp_path: Path) -> None:
    feed(store, tmp_path, request(1))
    assert run(store).rows == 0
    assert run(store, 3_000).rows == 1
    [row] = rows(store)
    assert (row["Service"], row["AuthNs"], row["QueueNs"], row["UnexplainedNs"]) == ("api", 10 * MS, 30 * MS, 60 * MS)
    assert run(store, 3_000).rows == 0


def test_what_lay_open_is_kept_for_the_next_round_and_no_other(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of unlike traces, some split over rounds, are the same whether a worker remembers or reads anew."""
    asked: list[int] = []
    read = inbox.read_inbox

    def reading(store: Store, shards: Any, since_ms: int, low: int, to: int) -> Any:
        asked.append(low)
        return read(store, shards, since_ms, low, to)

    monkeypatch.setattr(inbox, "read_inbox", reading)
    feed(store, tmp_path, [*request(1), request(2)[0]])
    assert run(store).rows == 0
    lay_open = progress.load(store, [0])[0][0]
    feed(store, tmp_path, [*request(2)[1:], *request(3, service="other")])
    assert run(store).rows == 0
    assert asked == [0, lay_open.cursor]
    job._WORKERS.pop(store)
    assert run(store, 3_000).rows == 3
    assert asked[2:] == [lay_open.low]
    assert [row["SpanCount"] for row in rows(store)] == [3, 3, 3]
    assert_rollups_agree(store)


def test_a_round_judges_what_has_settled_and_leaves_the_rest_whole(store: Store, tmp_path: Path) -> None:
    """Settled and open traces lie mixed in one block: neither gets a span of the other."""
    late = [request(k) for k in (2, 4)]
    mixed = [span for spans in zip(request(1), late[0], request(3), late[1], strict=True) for span in spans]
    feed(store, tmp_path, [span for span in mixed if span not in (late[0][0], late[1][0])])
    assert run(store, 3_000).rows == 2
    assert {row["TraceId"] for row in rows(store)} == {trace_id(1), trace_id(3)}
    feed(store, tmp_path, [late[0][0], late[1][0]])
    assert run(store, 8_000).rows == 2
    assert [(row["SpanCount"], row["AuthNs"], row["QueueNs"], row["UnexplainedNs"]) for row in rows(store)] == (
        4 * [(3, 10 * MS, 30 * MS, 60 * MS)]
    )
    assert_rollups_agree(store)


def test_a_rootless_trace_waits_ten_seconds_and_its_root_heals_it(store: Store, tmp_path: Path) -> None:
    root, *children = request(2)
    feed(store, tmp_path, [replace(children[0], kind="Server", service="worker")])
    assert run(store, 3_000).rows == 0
    assert run(store, 11_000).rows == 1
    [row] = rows(store)
    assert row["Flags"] == ["parent_missing"]
    assert row["IsRoot"]
    feed(store, tmp_path, [root, children[1]])
    assert run(store, 20_000).reopened == 1
    healed = {row["Service"]: row for row in rows(store)}
    assert set(healed) == {"api", "worker"}
    assert healed["worker"]["Flags"] == []
    assert not healed["worker"]["IsRoot"]
    assert healed["api"]["SpanCount"] == 3
    assert_rollups_agree(store)


def test_a_late_span_changes_row_and_rollups_once(store: Store, tmp_path: Path) -> None:
    root, auth, queue = request(3)
    feed(store, tmp_path, [root, auth])
    run(store, 3_000)
    assert rows(store)[0]["QueueNs"] == 0
    feed(store, tmp_path, [queue])
    assert run(store, 14_000).rows == 2
    run(store, 14_000)
    [row] = rows(store)
    assert (row["QueueNs"], row["SpanCount"]) == (30 * MS, 3)
    assert_rollups_agree(store)


def test_a_late_span_after_a_restart_finds_the_row(store: Store, tmp_path: Path) -> None:
    root, auth, queue = request(4)
    feed(store, tmp_path, [root, auth])
    run(store, 3_000)
    job._WORKERS.clear()
    feed(store, tmp_path, [queue])
    assert run(store, 14_000).reopened == 1
    assert [row["SpanCount"] for row in rows(store)] == [3]
    assert_rollups_agree(store)


def test_duplicate_spans_count_once(store: Store, tmp_path: Path) -> None:
    spans = request(5)
    feed(store, tmp_path, spans + spans)
    run(store, 3_000)
    feed(store, tmp_path, spans)
    run(store, 14_000)
    assert [row["SpanCount"] for row in rows(store)] == [3]
    assert_rollups_agree(store)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("together", [True, False])
def test_of_unlike_spans_of_one_id_the_earliest_and_then_the_longest_counts(
    store: Store, tmp_path: Path, order: tuple[int, ...], together: bool
) -> None:
    """In whatever order they come, and all of them stay visible in the trace."""
    root, auth, queue = request(5)
    copies = [
        replace(queue, end_unix_ns=queue.end_unix_ns + 7 * MS),
        queue,
        replace(queue, start_unix_ns=queue.start_unix_ns + 1 * MS, end_unix_ns=queue.end_unix_ns + 20 * MS),
    ]
    sent = [copies[k] for k in order]
    if together:
        feed(store, tmp_path, [root, auth, *sent])
    else:
        for part in ([sent[0]], [root, auth], [sent[1]], [sent[2]]):
            feed(store, tmp_path, part)
            run(store, 3_000)
    run(store, 14_000)
    [row] = rows(store)
    assert (row["QueueNs"], row["SpanCount"]) == (37 * MS, 3)
    assert store.query("SELECT count() AS n FROM otel_traces") == [{"n": 5}]
    assert_rollups_agree(store)


def test_a_trace_of_100_000_spans_is_one_request_and_a_late_span_counts(store: Store, tmp_path: Path) -> None:
    """In 20 inserts; the page says how many there are and shows some."""
    root, auth, queue = request(6, length_ms=2_000)
    step = [
        replace(auth, span_id=f"{1_000_000 + k:016x}", name=f"step {k % 7}", start_unix_ns=root.start_unix_ns + 60 * MS
                + k * 1_000, end_unix_ns=root.start_unix_ns + 60 * MS + k * 1_000 + 900, attributes={})
        for k in range(99_997)
    ]  # fmt: skip
    feed(store, tmp_path, [root, auth, queue])
    for start in range(0, len(step), 5_000):
        feed_together(store, tmp_path, step[start : start + 5_000])
    run(store, 3_000)
    [row] = rows(store)
    assert (row["SpanCount"], row["QueueNs"]) == (100_000, 30 * MS)
    shown = waterfall(store, trace_id(6))
    assert (shown.total, shown.shown <= 20_000) == (100_000, True)
    feed(store, tmp_path, [replace(auth, span_id="ffffffffffffffff", start_unix_ns=root.start_unix_ns + 300 * MS)])
    run(store, 600_000)
    assert [row["SpanCount"] for row in rows(store)] == [100_001]


@pytest.mark.parametrize("summed", [False, True])
def test_a_round_that_an_older_release_began_is_finished_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summed: bool
) -> None:
    feed(store, tmp_path, request(6))
    claim = progress.claim

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    def claim_of_old(store: Store, shards: Any, before: progress.Progress, wanted: progress.Claim) -> progress.Claim:
        return claim(store, shards, before, progress.Claim(wanted.round, wanted.to, wanted.now_ms, summed=summed))

    with monkeypatch.context() as patch:
        patch.setattr(progress, "claim", claim_of_old)
        patch.setattr(progress, "advance", die)
        with pytest.raises(KeyboardInterrupt):
            run(store, 3_000)
    feed(store, tmp_path, request(7))
    for _ in range(3):
        run(store, 14_000)
    assert [row["TraceId"] for row in rows(store)] == [trace_id(6), trace_id(7)]
    assert_rollups_agree(store)


@pytest.mark.parametrize("forget", [False, True])
def test_dying_between_the_rows_and_the_watermark(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: bool
) -> None:
    feed(store, tmp_path, request(6))

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(progress, "advance", die)
        with pytest.raises(KeyboardInterrupt):
            run(store, 3_000)
    if forget:
        job._WORKERS.clear()
    feed(store, tmp_path, request(7))
    for _ in range(3):
        run(store, 14_000)
    assert [row["TraceId"] for row in rows(store)] == sorted([trace_id(6), trace_id(7)])
    assert store.query("SELECT count() AS n FROM requests")[0]["n"] == 2
    assert_rollups_agree(store)


def test_workers_of_one_lane_at_once(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a memory of its own, as in processes of their own."""
    for k in range(20, 40):
        feed(store, tmp_path, request(k))
    now = store_now_ms(store) + 3_000
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(job._Worker(0, 1).run, store, now) for _ in range(8)]:
            done.result()
    assert len(rows(store)) == 20
    assert store.query("SELECT count() AS n FROM requests")[0]["n"] == 20
    assert_rollups_agree(store)


def test_a_backlog_is_judged_in_bounded_rounds(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(50, 60):
        feed(store, tmp_path, request(k))
    monkeypatch.setattr(job, "ROUND_SPANS", 6)
    now = store_now_ms(store) + 6 * 3_600_000
    reports = [run_requests(store, now_ms=now)]
    while reports[-1].behind:
        reports.append(run_requests(store, now_ms=now))
    assert len(reports) == 5
    assert len(rows(store)) == 10
    assert_rollups_agree(store)


def test_lanes_share_the_work(store: Store, tmp_path: Path) -> None:
    for k in range(60, 90):
        feed(store, tmp_path, request(k))
    now = store_now_ms(store) + 3_000
    counts = [run_requests(store, now_ms=now, lane=lane, lanes=3).rows for lane in range(3)]
    assert sum(counts) == 30
    assert min(counts) > 0
    assert len(rows(store)) == 30


def test_an_internal_entry_span_has_its_attributes(store: Store, tmp_path: Path) -> None:
    """The inbox leaves them out; the trace is then read in full."""
    root, auth, _ = request(90)
    inner = replace(auth, service="worker", attributes={"gen_ai.request.model": "m", "tailtrace.request_id": "r"})
    feed(store, tmp_path, [root, inner])
    run(store, 3_000)
    assert {row["Service"]: (row["Model"], row["RequestId"]) for row in rows(store)} == {
        "api": ("", ""),
        "worker": ("m", "r"),
    }
    assert_rollups_agree(store)


def test_weights_count_and_clock_faults_do_not(store: Store, tmp_path: Path) -> None:
    feed(store, tmp_path, request(91, **{"tailtrace.sample_weight": "10"}))
    faulty = replace(request(92)[0], end_unix_ns=BASE_NS - 1)
    feed(store, tmp_path, [faulty])
    run(store, 3_000)
    by_trace = {row["TraceId"]: row for row in rows(store)}
    assert by_trace[trace_id(92)]["Flags"] == ["clock_fault"]
    assert by_trace[trace_id(92)]["DurationNs"] == 0
    assert store.query("SELECT sum(N) AS n FROM rollup_1m WHERE Metric = 'duration'")[0]["n"] == 10
    assert_rollups_agree(store)


def test_percentiles_from_buckets_are_within_one_percent(store: Store, tmp_path: Path) -> None:
    lengths = [60 + (k * k * 37) % 4_000 for k in range(300)]
    spans = [span for k, ms in enumerate(lengths) for span in request(1_000 + k, length_ms=ms, start_ms=k)[:1]]
    feed(store, tmp_path, spans)
    run(store, 3_000)
    buckets = store.query("SELECT K AS k, sum(N) AS n FROM rollup_1d WHERE Metric = 'duration' GROUP BY k ORDER BY k")
    for q in (0.5, 0.95, 0.99, 0.999):
        rank = math.ceil(q * len(lengths))
        exact = sorted(lengths)[rank - 1] * MS
        seen = 0
        for bucket in buckets:
            seen += bucket["n"]
            if seen >= rank:
                break
        assert 1.02 ** bucket["k"] * 2 / (1 + 1.02) == pytest.approx(exact, rel=0.0101)


def test_progress_is_receive_time(store: Store, tmp_path: Path) -> None:
    assert watermark_ns(store) is None
    assert complete_until(store, "api") is None
    feed(store, tmp_path, request(93))
    now = store_now_ms(store) + 3_000
    run_requests(store, now_ms=now)
    watermark = watermark_ns(store)
    assert watermark == (now - 1_000) * MS
    received = store.query("SELECT toUnixTimestamp64Milli(ReceivedAt) * 1000000 AS at FROM requests")[0]["at"]
    delay = received - (BASE_NS + 100 * MS)
    assert complete_until(store, "unheard of") == watermark - 5_000 * MS
    if now - 3_600_000 < (BASE_NS // MS):
        assert complete_until(store, "api") == watermark - max(delay, 5_000 * MS)


def test_an_open_trace_holds_the_watermark(store: Store, tmp_path: Path) -> None:
    feed(store, tmp_path, request(94))
    received = store.query("SELECT toUnixTimestamp64Milli(min(Received)) AS at FROM span_inbox")[0]["at"]
    run_requests(store, now_ms=received + 1_500)
    assert watermark_ns(store) == (received - 1) * MS


def test_the_inbox_is_dropped_behind_the_watermark(store: Store, tmp_path: Path) -> None:
    feed(store, tmp_path, request(95))
    store.command("INSERT INTO span_inbox SELECT * REPLACE (Received - INTERVAL 1 HOUR AS Received) FROM span_inbox")
    run(store, 3_000)
    assert trim_inbox(store) == 1
    assert store.query("SELECT count() AS n FROM span_inbox")[0]["n"] == 3

"""The oldest goes first, and what is left is what the tables say."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bodies import trace_body

from tailtrace.ingest.framing import frame
from tailtrace.ingest.retention import Part, _oldest, enforce, kept
from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import Store

DAY_NS = 86_400 * 10**9
TODAY = (time.time_ns() // DAY_NS) * DAY_NS
SPANS = "SELECT DISTINCT toString(toDate(Timestamp)) AS day FROM otel_traces ORDER BY day"
BOUNDS = "SELECT count() AS n FROM otel_traces_trace_id_ts"


def fill(store: Store, folder: Path, *days_ago: int) -> None:
    for number, days in enumerate(days_ago):
        body = trace_body(500, start_unix_ns=TODAY - days * DAY_NS + 1)
        path = folder / "segment.otlp"
        path.write_bytes(frame(body) + body)
        store.insert_segment("traces", path, f"{folder}-{number}")


def day(days_ago: int) -> str:
    return f"{datetime.fromtimestamp((TODAY - days_ago * DAY_NS) / 1e9, UTC):%Y-%m-%d}"


def settings(tmp_path: Path, **values: int) -> ServerSettings:
    return ServerSettings(data=tmp_path, **values)  # type: ignore[arg-type]


def test_days_go_oldest_first_until_the_budget_holds(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, 40, 30, 2, 0)
    before = kept(store, settings(tmp_path))
    assert before.oldest == day(40)
    budget = before.telemetry_bytes - 1
    after = enforce(store, settings(tmp_path, storage_budget_bytes=budget))
    assert [row["day"] for row in store.query(SPANS)] == [day(30), day(2), day(0)]
    assert (after.oldest, after.budget_bytes) == (day(30), budget)
    assert after.telemetry_bytes <= budget
    # The side table follows by week, and nothing more goes while the budget holds.
    assert store.query(BOUNDS) == [{"n": 3}]
    assert enforce(store, settings(tmp_path, storage_budget_bytes=budget)).dropped == 0


def test_age_drops_days_whatever_the_budget(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, 40, 7, 6)
    assert enforce(store, settings(tmp_path, retention_days=7)).oldest == day(7)
    assert [row["day"] for row in store.query(SPANS)] == [day(7), day(6)]


def test_requests_outlive_their_spans_and_have_an_age_of_their_own(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, 50, 0)
    for days in (50, 400):
        store.command(
            "INSERT INTO requests (End, TraceId, SpanId, Service, Sign, Revision) SELECT "
            "fromUnixTimestamp64Nano({end:Int64}, 'UTC'), {t:String}, 's', 'gw', 1, 1",
            {"end": TODAY - days * DAY_NS, "t": f"t{days}"},
        )
    enforce(store, settings(tmp_path, retention_days=10))
    assert store.query("SELECT count() AS n FROM requests") == [{"n": 2}]
    enforce(store, settings(tmp_path, derived_retention_days=100))
    assert store.query("SELECT TraceId AS t FROM requests") == [{"t": "t50"}]


@pytest.mark.parametrize(
    ("excess", "names"),
    [(0, []), (1, ["a1", "a2"]), (25, ["a1", "a2", "b1", "b2"]), (45, ["a1", "a2", "b1", "b2", "c1"])],
)
def test_of_the_newest_day_only_the_oldest_parts_go(excess: int, names: list[str]) -> None:
    parts = [
        Part("otel_traces", f"2026010{'abc'.index(n[0]) + 1}", n, 10) for n in ("a1", "a2", "b1", "b2", "c1", "c2")
    ]
    assert [part.name for part in _oldest(parts, excess)] == names


def test_one_day_over_the_budget_loses_its_first_parts(store: Store, tmp_path: Path) -> None:
    store.command("SYSTEM STOP MERGES otel_traces")
    try:
        fill(store, tmp_path, 0, 0, 0, 0)
        total = kept(store, settings(tmp_path)).telemetry_bytes
        after = enforce(store, settings(tmp_path, storage_budget_bytes=total - 1))
        assert store.query("SELECT count() AS n FROM otel_traces") == [{"n": 1500}]
        assert after.telemetry_bytes < total
    finally:
        store.command("SYSTEM START MERGES otel_traces")

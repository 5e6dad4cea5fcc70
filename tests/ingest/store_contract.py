"""What every store must do. One kit, run against the embedded store and against a server over HTTP."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from bodies import trace_body

from tailtrace.errors import StoreError
from tailtrace.ingest.framing import frame
from tailtrace.ingest.store import Store, migrate

DAY_NS = 86_400 * 1_000_000_000
T0 = 1_790_000_000_000_000_000


def segment(path: Path, *bodies: bytes) -> Path:
    """A journal segment."""
    path.write_bytes(b"".join(frame(body) + body for body in bodies))
    return path


def count(store: Store, table: str) -> int:
    return int(store.query(f"SELECT count() AS n FROM {table}")[0]["n"])


class StoreContract:
    """Inherit and provide a fixture `store` whose tables are empty."""

    def test_parameters_reach_the_engine_as_they_are(self, store: Store) -> None:
        text = "it's \\ \n\t{x:String} -- ☃"
        row = store.query(
            "SELECT {s:String} AS s, {a:Array(String)} AS a, {n:UInt64} AS n, {m:Map(String, String)} AS m",
            {"s": text, "a": ["q'", "\\"], "n": 2**64 - 1, "m": {"k": "v'"}},
        )
        assert row == [{"s": text, "a": ["q'", "\\"], "n": 2**64 - 1, "m": {"k": "v'"}}]

    def test_long_parameters_reach_the_engine_too(self, store: Store) -> None:
        """Longer than a URL may be: a driver over HTTP sends them as a form."""
        ids = [f"{number:032x}" for number in range(20_000)]
        found = store.query("SELECT length({ids:Array(String)}) AS n, {ids:Array(String)}[-1] AS last", {"ids": ids})
        assert found == [{"n": 20_000, "last": ids[-1]}]

    def test_datetimes_are_aware_and_in_utc(self, store: Store) -> None:
        moment = datetime(2026, 3, 29, 1, 30, 0, 123456, UTC)
        row = store.query(
            "SELECT {t:DateTime64(6, 'UTC')} AS t, toUnixTimestamp64Nano(toDateTime64(t, 9, 'UTC')) AS ns",
            {"t": moment},
        )
        assert row == [{"t": moment, "ns": 1_774_747_800_123_456_000}]
        assert store.query("SELECT timezone() AS z") == [{"z": "UTC"}]

    def test_an_empty_result_keeps_its_columns(self, store: Store) -> None:
        table = store.query_arrow("SELECT 1 AS a, 'x' AS b WHERE 0")
        assert table.column_names == ["a", "b"]
        assert table.num_rows == 0

    def test_a_refused_statement_says_why(self, store: Store) -> None:
        with pytest.raises(StoreError, match=r"Code: 60\..*no_such_table"):
            store.query("SELECT * FROM no_such_table")

    def test_a_failed_query_leaves_nothing_for_the_next(self, store: Store) -> None:
        for _ in range(8):
            with pytest.raises(StoreError, match="Code: 396"):
                store.query("SELECT * FROM numbers(100000)", settings={"max_result_rows": 1000})
            assert store.query("SELECT 'mine' AS x") == [{"x": "mine"}]

    def test_settings_of_one_query(self, store: Store) -> None:
        with pytest.raises(StoreError, match="Code: 396"):
            store.query("SELECT * FROM numbers(100)", settings={"max_result_rows": 10})

    def test_an_arrow_insert_happens_once_per_token(self, store: Store) -> None:
        data = pa.table({"Version": pa.array([990, 991], pa.uint32()), "Name": ["a", "b"]})
        store.command(
            "CREATE TABLE IF NOT EXISTS once (Version UInt32, Name String) ENGINE = MergeTree ORDER BY Version "
            "SETTINGS non_replicated_deduplication_window = 100"
        )
        store.command("TRUNCATE TABLE once")
        for token in ("one", "one", "two"):
            store.insert_arrow("once", data, token=f"{id(data)}-{token}")
        assert count(store, "once") == 4
        assert store.query("SELECT Name FROM once ORDER BY Name LIMIT 1") == [{"Name": "a"}]
        store.command("DROP TABLE once")

    def test_a_segment_becomes_spans_once(self, store: Store, tmp_path: Path) -> None:
        trace = bytes(range(16))
        attributes = {"s": "x", "i": -7, "zero": 0, "b": True, "d": 1.5, "list": ["a", 1]}
        path = segment(
            tmp_path / "a.otlp",
            trace_body(2, trace_id=trace, start_unix_ns=T0, duration_ns=1_000, attributes=attributes),
            trace_body(1, start_unix_ns=T0, service="other"),
        )
        for _ in range(2):
            store.insert_segment("traces", path, token=str(path))
        rows = store.query(
            "SELECT toUnixTimestamp64Nano(Timestamp) AS t, SpanName, SpanKind, ServiceName, Duration, "
            "SpanAttributes, ClockFault FROM otel_traces WHERE TraceId = {id:String}",
            {"id": trace.hex()},
        )
        assert (
            rows
            == [
                {
                    "t": T0,
                    "SpanName": "work",
                    "SpanKind": "Server",
                    "ServiceName": "gw",
                    "Duration": 1_000,
                    "SpanAttributes": {"s": "x", "i": "-7", "zero": "0", "b": "true", "d": "1.5", "list": '["a",1]'},
                    "ClockFault": False,
                }
            ]
            * 2
        )
        assert count(store, "otel_traces") == 3
        bounds = store.query(
            "SELECT toUnixTimestamp64Nano(min(Start)) AS s, toUnixTimestamp64Nano(max(End)) AS e "
            "FROM otel_traces_trace_id_ts WHERE TraceId = {id:String}",
            {"id": trace.hex()},
        )
        assert bounds == [{"s": T0, "e": T0 + 1_000}]

    def test_a_segment_over_150_days_is_stored(self, store: Store, tmp_path: Path) -> None:
        bodies = [trace_body(1, start_unix_ns=T0 - day * DAY_NS) for day in range(150)]
        store.insert_segment("traces", segment(tmp_path / "days.otlp", *bodies), token=str(tmp_path))
        assert store.query("SELECT uniqExact(toDate(Timestamp)) AS days FROM otel_traces") == [{"days": 150}]

    def test_a_body_that_is_no_otlp_is_refused(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="Code: "):
            store.insert_segment("traces", segment(tmp_path / "bad.otlp", b"\xff\xff\xff"), token=str(tmp_path))
        assert count(store, "otel_traces") == 0

    def test_the_schema_is_in_place(self, store: Store) -> None:
        assert migrate(store) == []

"""One trace: head, detail, waterfall, span."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from seeding import SECOND, T0, insert_traces, judge_traces
from span_by_span import read_trace

from tailtrace.analytics.judge import judge_spans
from tailtrace.analytics.queries import get_request, get_span, to_json, waterfall
from tailtrace.analytics.queries.request_head import head_of, request_head
from tailtrace.analytics.queries.trace_tree import keep, parent_positions, trace_tree
from tailtrace.errors import NotFound, Rejected
from tailtrace.ingest.receiver.otlp_json import to_protobuf
from tailtrace.ingest.store import Store
from tailtrace.instrumentation.otlp import SpanData, encode_traces

MS = 1_000_000
ENGINES = sorted((Path(__file__).parents[2] / "data" / "engines").glob("*.json"))
TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(number: int, parent: int, name: str, start_ms: float, end_ms: float, **attributes: Any) -> SpanData:
    return SpanData(
        trace_id=bytes.fromhex(TRACE),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        name=name,
        kind=attributes.pop("kind", 1),
        start_unix_ns=T0 + round(start_ms * MS),
        end_unix_ns=T0 + round(end_ms * MS),
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
    )


@pytest.fixture
def traced(store: Store, tmp_path: Path) -> Store:
    """gateway 100 ms = 10 auth + 80 in the engine (20 queue, 60 decode) + 10 unexplained."""
    gateway = [
        span(1, 0, "POST /v1/chat", 0, 100, kind=2, tailtrace__request=True, tailtrace__route="/v1/chat"),
        span(2, 1, "auth", 0, 10, tailtrace__stage="auth"),
        span(3, 1, "call", 10, 90, kind=3),
    ]
    engine = [
        span(4, 3, "llm <script>alert(1)</script>", 10, 90, kind=2, tailtrace__request=True),
        span(5, 4, "queue", 10, 30, tailtrace__stage="queue"),
        span(6, 4, "decode", 30, 90, tailtrace__stage="decode"),
    ]
    bodies = [encode_traces({"service.name": "gateway"}, gateway), encode_traces({"service.name": "llm"}, engine)]
    insert_traces(store, tmp_path, bodies, "trace-queries")
    return store


def test_a_trace_that_is_not_judged_yet_is_judged_now(traced: Store) -> None:
    detail = get_request(traced, TRACE.upper())
    assert not detail.stored
    assert [(one.service, one.is_root) for one in detail.requests] == [("gateway", True), ("llm", False)]
    assert [(line.stage, line.duration_ns) for line in detail.stage_table] == [
        ("auth", 10 * MS), ("queue", 20 * MS), ("decode", 60 * MS), ("unexplained", 10 * MS),
    ]  # fmt: skip


def test_stored_rows_and_judging_now_say_the_same(traced: Store) -> None:
    before = get_request(traced, TRACE)
    judge_traces(traced, [TRACE])
    after = get_request(traced, TRACE)
    assert after.stored
    assert after.requests == before.requests
    assert after.stage_table == before.stage_table


def same_as_span_by_span(store: Store, trace: str) -> None:
    """What columns say of a trace that is not judged yet, and what its spans read one by one say."""
    judged = judge_spans(read_trace(store, trace))
    wanted = head_of(trace, [one.row for one in judged])
    assert request_head(store, trace) == wanted
    for first in judged:
        span_id = first.row["SpanId"]
        detail = get_request(store, trace, span_id=span_id)
        assert detail.requests == head_of(trace, [one.row for one in judged], span_id=span_id).requests
        assert [(one.span_id, one.stage, one.name, one.edge, one.duration_ns) for one in detail.critical_path] == [
            (one.span_id, one.stage, one.name, one.edge, one.duration_ns) for one in first.segments
        ]


def test_a_request_that_ends_before_it_begins_has_its_flag_before_it_is_judged(store: Store, tmp_path: Path) -> None:
    insert_traces(
        store, tmp_path, [encode_traces({"service.name": "gateway"}, [span(1, 0, "POST", 9, 3, kind=2)])], "f"
    )
    same_as_span_by_span(store, TRACE)
    assert "clock_fault" in get_request(store, TRACE).requests[0].flags


@pytest.mark.parametrize("ids", [("a", "b"), ("0123 56789abcdef", "                "), ("x" * 16, "00000000000000FF")])
def test_ids_that_are_no_sixteen_digits_still_tell_spans_apart(store: Store, ids: tuple[str, str]) -> None:
    """As the Collector's exporter could write them."""
    for own, parent in ((ids[0], ""), (ids[1], ids[0])):
        store.command(
            "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanKind, ServiceName, Duration) "
            "SELECT fromUnixTimestamp64Nano({t:Int64}, 'UTC'), {trace:String}, {own:String}, {parent:String}, "
            "'Server', 'api', 5",
            {"t": T0, "trace": TRACE, "own": own, "parent": parent},
        )
    fall = waterfall(store, TRACE)
    assert (fall.total, fall.depths) == (2, [0, 1])


@pytest.mark.parametrize("recording", ENGINES, ids=lambda path: path.stem)
def test_columns_say_what_spans_say(store: Store, tmp_path: Path, recording: Path) -> None:
    """Engines whose words are in events, links and the resource among them."""
    insert_traces(store, tmp_path, [to_protobuf("traces", recording.read_bytes()).body], f"columns-{recording.stem}")
    traces = store.query("SELECT DISTINCT TraceId AS trace FROM otel_traces")
    assert traces
    for row in traces:
        same_as_span_by_span(store, row["trace"])


def test_of_unlike_spans_of_one_id_columns_choose_the_same(store: Store, tmp_path: Path) -> None:
    unlike = [
        span(1, 0, "POST /v1/chat", 0, 100, kind=2),
        *(span(2, 1, f"auth {end}", 5, end, tailtrace__stage="auth") for end in (10, 40, 20)),
    ]
    bodies = [encode_traces({"service.name": "gateway"}, [one]) for one in unlike]
    insert_traces(store, tmp_path, bodies, "unlike-columns")
    same_as_span_by_span(store, TRACE)
    assert [(one.name, one.duration_ns) for one in get_request(store, TRACE).spans][1:] == [("auth 40", 35 * MS)]


def test_of_many_requests_the_one_asked_for_stays(store: Store, tmp_path: Path, monkeypatch: Any) -> None:
    calls = [span(n, 1 if n > 1 else 0, f"call {n}", n, 50 + n, kind=2) for n in range(1, 8)]
    bodies = [encode_traces({"service.name": one.name}, [one]) for one in calls]
    insert_traces(store, tmp_path, bodies, "many-requests")
    monkeypatch.setattr("tailtrace.analytics.queries.request_head.MAX_REQUESTS", 3)
    assert [one.name for one in request_head(store, TRACE).requests] == ["call 1", "call 2", "call 3"]
    asked = request_head(store, TRACE, span_id=f"{6:016x}").requests
    assert [one.name for one in asked] == ["call 6", "call 1", "call 2"]


def test_the_critical_path_covers_the_request(traced: Store) -> None:
    path = get_request(traced, TRACE).critical_path
    assert [one.stage for one in path] == ["auth", "queue", "decode", "unexplained"]
    assert sum(one.duration_ns for one in path) == 100 * MS
    at = T0
    for one in path:
        assert int(one.start_unix_ns) == at
        at += one.duration_ns


def test_a_long_path_keeps_its_longest_segments_and_says_how_many_there_are(traced: Store) -> None:
    detail = get_request(traced, TRACE, max_spans=2)
    whole = get_request(traced, TRACE)
    longest = sorted(whole.critical_path, key=lambda one: -one.duration_ns)[:2]
    assert detail.critical_path == [one for one in whole.critical_path if one in longest]
    assert (detail.critical_path_total, whole.critical_path_total) == (4, 4)
    assert (detail.spans_shown, len(detail.spans), detail.spans_total) == (2, 2, whole.spans_total)


def test_another_entry_can_be_first(traced: Store) -> None:
    detail = get_request(traced, TRACE, span_id=f"{4:016x}")
    assert detail.requests[0].service == "llm"
    assert [(line.stage, line.duration_ns) for line in detail.stage_table] == [("queue", 20 * MS), ("decode", 60 * MS)]
    assert [one.stage for one in detail.critical_path] == ["queue", "decode"]


def test_shares_sum_to_one(traced: Store) -> None:
    table = get_request(traced, TRACE).stage_table
    assert sum(line.duration_ns for line in table) == 100 * MS
    assert sum(line.share for line in table) == pytest.approx(1.0)


def test_the_waterfall_has_the_same_spans_in_tree_order(traced: Store) -> None:
    found = waterfall(traced, TRACE)
    assert [found.words[name] for name in found.names] == [
        "POST /v1/chat", "auth", "call", "llm <script>alert(1)</script>", "queue", "decode",
    ]  # fmt: skip
    assert found.depths == [0, 1, 1, 2, 3, 3]
    assert found.sizes == [5, 0, 3, 2, 0, 0]
    assert found.starts == [0, 0, 10 * MS, 10 * MS, 10 * MS, 30 * MS]
    assert found.span_ids == "".join(f"{number:016x}" for number in (1, 2, 3, 4, 5, 6))
    assert found.path_start == 0
    assert (found.total, found.shown, found.duration_ns) == (6, 6, 100 * MS)
    assert [(row, found.words[stage], length) for row, stage, length, _ in found.path] == [
        (1, "auth", 10 * MS), (4, "queue", 20 * MS), (5, "decode", 60 * MS), (0, "unexplained", 10 * MS),
    ]  # fmt: skip


def test_one_span_as_it_was_sent(traced: Store) -> None:
    found = get_span(traced, TRACE, f"{5:016X}")
    assert (found.name, found.service, found.stage, found.duration_ns) == ("queue", "llm", "queue", 20 * MS)
    assert (found.start_unix_ns, found.end_unix_ns) == (str(T0 + 10 * MS), str(T0 + 30 * MS))
    assert found.attributes == {"tailtrace.stage": "queue"}
    assert found.resource == {"service.name": "llm"}


def test_what_is_not_there(traced: Store) -> None:
    with pytest.raises(NotFound, match="nothing is stored"):
        get_request(traced, "f" * 32)
    with pytest.raises(NotFound, match="no spans"):
        waterfall(traced, "f" * 32)
    with pytest.raises(NotFound, match="no span"):
        get_span(traced, TRACE, "f" * 16)
    for bad in ("", "xyz", TRACE[:-1], TRACE + "0"):
        with pytest.raises(Rejected, match="32 hexadecimal"):
            get_request(traced, bad)


@dataclass(frozen=True)
class Row:
    span_id: str
    depth: int
    size: int
    orphan: bool
    duration_ns: int


def rows_of(tree: dict[int, int], durations: dict[int, int] | None = None) -> list[Row]:
    ids = [str(number) for number in tree]
    found = trace_tree(ids, [str(parent) if parent else "" for parent in tree.values()])
    return [
        Row(ids[at], found.depths[row], found.sizes[row], found.orphans[row], (durations or {}).get(int(ids[at]), 1))
        for row, at in enumerate(found.order)
    ]


def test_orphans_and_cycles_are_kept_once() -> None:
    rows = rows_of({1: 0, 2: 1, 3: 99, 4: 5, 5: 4})
    assert [(row.span_id, row.depth, row.orphan) for row in rows] == [
        ("1", 0, False), ("2", 1, False), ("3", 0, True), ("4", 0, False), ("5", 1, False),
    ]  # fmt: skip
    assert rows_of({7: 7})[0].span_id == "7"


def test_a_chain_deeper_than_pythons_stack() -> None:
    rows = rows_of({number: number - 1 for number in range(1, 5001)})
    assert rows[-1].depth == 4999
    assert rows[0].size == 4999


def test_a_cap_keeps_parents_and_what_is_wanted() -> None:
    tree = {1: 0} | dict.fromkeys(range(2, 102), 1) | {200: 2, 201: 200}
    rows = rows_of(tree, {50: 10 * SECOND})
    parents, durations = parent_positions([row.depth for row in rows]), [row.duration_ns for row in rows]
    wanted = next(at for at, row in enumerate(rows) if row.span_id == "201")
    ids = [rows[at].span_id for at in keep(parents, durations, {wanted}, 6)]
    assert ids[:4] == ["1", "2", "200", "201"]
    assert "50" in ids
    assert len(ids) == 6
    assert keep(parents, durations, set(), 10_000) == list(range(len(rows)))


def test_json_has_no_surprises(traced: Store) -> None:
    body = to_json(get_request(traced, TRACE))
    assert b'"start_unix_ns":"' in body
    assert b"NaN" not in body

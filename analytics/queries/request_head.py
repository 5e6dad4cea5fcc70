"""What one trace's requests were and where their time went: from the stored rows, or judged now when none are
stored yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailtrace.analytics.queries.request_row import LIST_COLUMNS, RequestRow, request_row
from tailtrace.analytics.queries.trace_columns import TraceColumns, trace_columns
from tailtrace.analytics.queries.trace_id import trace_id as checked
from tailtrace.analytics.trace import UNPLANNED
from tailtrace.errors import NotFound
from tailtrace.ingest.store import Store
from tailtrace.stages import REQUEST_STAGES, STAGES, UNEXPLAINED


@dataclass(frozen=True, slots=True)
class StageLine:
    """One line of the stage table. `ttft_duration_ns` is the part before the first token, null where there was none."""

    stage: str
    kind: str
    resource: str
    duration_ns: int
    share: float
    ttft_duration_ns: int | None
    ttft_share: float | None
    derived: bool


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Requests of a trace, root first, with the stage table of the first. `stored` = the jobs have judged it."""

    trace_id: str
    requests: list[RequestRow]
    stage_table: list[StageLine]
    stored: bool
    conditions: dict[str, str]


MAX_REQUESTS: Final = 20_000  # of one trace
_COLUMNS: Final = (
    *LIST_COLUMNS,
    *(f"{stage.column}TtftNs" for stage in REQUEST_STAGES),
    "UnexplainedTtftNs",
    "Precision",
    "Quantization",
    "GpuModel",
    "Tp",
    "EngineVersion",
    "ClientRegion",
    "Attempts",
)
_ROWS: Final = (
    f"SELECT {', '.join(_COLUMNS)}, toUnixTimestamp64Nano(Start) AS StartNs, Sign, Revision"
    " FROM requests PREWHERE requests.TraceId = {trace:String} LIMIT {limit:UInt64}"
)


def request_head(store: Store, trace_id: str, *, span_id: str | None = None) -> RequestHead:
    """Requests of a trace; `span_id` puts that entry first. Raises NotFound when nothing is stored under the id."""
    trace = checked(trace_id)
    rows = stored_rows(store, trace)
    if rows:
        return head_of(trace, rows, stored=True, span_id=span_id)
    return head_of(trace, judged_rows(trace_columns(store, trace, resources=True), span_id), span_id=span_id)


def stored_rows(store: Store, trace: str) -> list[Mapping[str, Any]]:
    """The rows that the jobs have written for a trace."""
    return current_rows(store.query(_ROWS, {"trace": trace, "limit": MAX_REQUESTS}, role="ui", settings=UNPLANNED))


def judged_rows(columns: TraceColumns | None, span_id: str | None = None) -> list[Mapping[str, Any]]:
    """The rows that the jobs will write for a trace read with its resources: that of entry `span_id` first, then
    roots, then by start; no more than MAX_REQUESTS.
    """
    if columns is None:
        return []
    rows = columns.judged.rows.select(_COLUMNS)
    rows = rows.append_column("StartNs", columns.judged.rows["Start"].cast(pa.int64()))
    keys = pa.table(
        {
            "asked": pc.equal(rows["SpanId"], span_id or ""),
            "root": rows["IsRoot"],
            "start": rows["StartNs"],
            "id": rows["SpanId"],
        }
    )
    order = [("asked", "descending"), ("root", "descending"), ("start", "ascending"), ("id", "ascending")]
    found: list[Mapping[str, Any]] = rows.take(pc.sort_indices(keys, order)[:MAX_REQUESTS]).to_pylist()
    return found


def is_judged(store: Store, trace_id: str) -> bool:
    """Whether the jobs have written a row for the trace."""
    sql = "SELECT count() AS n FROM requests WHERE TraceId = {trace:String}"
    return bool(store.query(sql, {"trace": checked(trace_id)}, role="ui")[0]["n"])


def head_of(
    trace: str, rows: Sequence[Mapping[str, Any]], *, stored: bool = False, span_id: str | None = None
) -> RequestHead:
    """The head of rows of `requests` that belong to one trace. Raises NotFound without any."""
    if not rows:
        raise NotFound(f"nothing is stored under trace id {trace}: it was never received, or retention has removed it")
    ordered = sorted(rows, key=lambda row: (row["SpanId"] != span_id, not row["IsRoot"], _start(row), row["SpanId"]))
    return RequestHead(
        trace, [request_row(row) for row in ordered], stage_table(ordered[0]), stored, _conditions(ordered)
    )


def current_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows that no later row takes back (Sign), one per entry span."""
    balance: dict[tuple[str, str, int], int] = {}
    for row in rows:
        key = (row["SpanId"], row["Service"], int(row["Revision"]))
        balance[key] = balance.get(key, 0) + int(row["Sign"])
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        key = (row["SpanId"], row["Service"], int(row["Revision"]))
        held = newest.get(key[:2])
        if row["Sign"] > 0 and balance[key] > 0 and (held is None or held["Revision"] < row["Revision"]):
            newest[key[:2]] = row
    return list(newest.values())


def stage_table(row: Mapping[str, Any]) -> list[StageLine]:
    """Stages of a row in vocabulary order, then unexplained; durations sum to the request's duration."""
    whole = int(row["DurationNs"])
    ttft = None if row["TtftNs"] is None else int(row["TtftNs"])
    derived = set(row["DerivedStages"])
    lines = []
    for stage in STAGES:
        spent = int(row.get(f"{stage.column}Ns") or 0)
        if spent:
            before = None if ttft is None else int(row.get(f"{stage.column}TtftNs") or 0)
            lines.append(
                _line(stage.name, stage.kind, stage.resource, spent, whole, before, ttft, stage.name in derived)
            )
    rest = int(row["UnexplainedNs"] or 0)
    if rest:
        before = None if ttft is None else int(row.get("UnexplainedTtftNs") or 0)
        lines.append(_line(UNEXPLAINED, "", "", rest, whole, before, ttft, False))
    return lines


def _line(
    stage: str, kind: str, resource: str, spent: int, whole: int, before: int | None, ttft: int | None, derived: bool
) -> StageLine:
    share = spent / whole if whole else 0.0
    before_share = before / ttft if before is not None and ttft else None
    return StageLine(stage, kind, resource, spent, share, before, before_share, derived)


def _conditions(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The conditions a figure depends on: the first entry's, or that of the one below it that knows (the engine)."""
    fields = (
        "Model",
        "Precision",
        "Quantization",
        "GpuModel",
        "Tp",
        "Engine",
        "EngineVersion",
        "Replica",
        "Version",
        "Tenant",
    )
    known: dict[str, str] = {}
    for field in fields:
        value = next((str(row[field]) for row in rows if row.get(field) not in (None, "", 0)), None)
        if value is not None:
            known[field] = value
    return {_snake(field): value for field, value in known.items()}


def _snake(column: str) -> str:
    return "".join(
        "_" + letter.lower() if letter.isupper() and index else letter.lower() for index, letter in enumerate(column)
    )


def _start(row: Mapping[str, Any]) -> int:
    value = row["StartNs"] if "StartNs" in row else row["Start"]
    return int(value) if isinstance(value, int) else round(value.timestamp() * 1e6) * 1000

"""One row of `requests` as it appears in lists, pages and alerts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tailtrace.analytics.queries.stage_shares import ROW_COLUMNS, StageShare, stage_shares

# Never the wide columns (Path, Gaps, Stalls): lists stay narrow.
LIST_COLUMNS: Final[tuple[str, ...]] = (
    "TraceId",
    "SpanId",
    "Service",
    "Name",
    "Route",
    "IsRoot",
    "Kind",
    "DurationNs",
    "TtftNs",
    "TpotNs",
    "Outcome",
    "ErrorType",
    "Streaming",
    "InputTokens",
    "OutputTokens",
    "CachedTokens",
    "N",
    "Model",
    "Version",
    "Engine",
    "Replica",
    "Tenant",
    "RequestId",
    "Simulated",
    "SpanCount",
    "Flags",
    "DerivedStages",
    *ROW_COLUMNS,
    "UnexplainedNs",
)


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One client-visible call as one service saw it. Shares are of `duration_ns`; unknown is null."""

    trace_id: str
    span_id: str
    service: str
    name: str
    route: str
    is_root: bool
    kind: str
    start_unix_ns: str
    duration_ns: int
    ttft_ns: int | None
    tpot_ns: int | None
    outcome: str
    error_type: str
    streaming: bool | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    n: int
    model: str
    version: str
    engine: str
    replica: str
    tenant: str
    request_id: str
    simulated: bool
    span_count: int
    stages: list[StageShare]
    unexplained_ns: int
    flags: list[str]


def request_row(row: Mapping[str, Any]) -> RequestRow:
    """From a row with LIST_COLUMNS and its start as `StartNs` (Unix ns) or `Start` (datetime or Unix ns)."""
    duration = int(row["DurationNs"])
    return RequestRow(
        trace_id=row["TraceId"],
        span_id=row["SpanId"],
        service=row["Service"],
        name=row["Name"],
        route=row["Route"],
        is_root=bool(row["IsRoot"]),
        kind=row["Kind"],
        start_unix_ns=str(_start_ns(row)),
        duration_ns=duration,
        ttft_ns=_optional(row["TtftNs"]),
        tpot_ns=_optional(row["TpotNs"]),
        outcome=row["Outcome"],
        error_type=row["ErrorType"],
        streaming={"true": True, "false": False}.get(str(row["Streaming"]).lower()),
        input_tokens=_optional(row["InputTokens"]),
        output_tokens=_optional(row["OutputTokens"]),
        cached_tokens=_optional(row["CachedTokens"]),
        n=int(row["N"]),
        model=row["Model"],
        version=row["Version"],
        engine=row["Engine"],
        replica=row["Replica"],
        tenant=row["Tenant"],
        request_id=row["RequestId"],
        simulated=bool(row["Simulated"]),
        span_count=int(row["SpanCount"]),
        stages=stage_shares(row, duration, derived=frozenset(row["DerivedStages"])),
        unexplained_ns=int(row["UnexplainedNs"] or 0),
        flags=list(row["Flags"]),
    )


def _start_ns(row: Mapping[str, Any]) -> int:
    if "StartNs" in row:
        return int(row["StartNs"])
    start = row["Start"]
    return round(start.timestamp() * 1e6) * 1000 if isinstance(start, datetime) else int(start)


def _optional(value: Any) -> int | None:
    return None if value is None else int(value)

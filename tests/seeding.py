"""Stored requests and spans for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from span_by_span import read_trace

from tailtrace.analytics.judge import judge_spans
from tailtrace.ingest.framing import frame
from tailtrace.ingest.store import Store

SECOND = 1_000_000_000
T0 = 1_790_000_000 * SECOND  # 2026-09-21 14:13:20 UTC

_SCALARS: dict[str, pa.DataType] = {
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "Int8": pa.int8(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "Float32": pa.float32(),
    "String": pa.string(),
    "LowCardinality(String)": pa.string(),
    "Bool": pa.bool_(),
    "DateTime64(9, 'UTC')": pa.timestamp("ns", "UTC"),
    "DateTime64(3, 'UTC')": pa.timestamp("ms", "UTC"),
    "Array(LowCardinality(String))": pa.list_(pa.string()),
}
_PATH = pa.list_(
    pa.struct(
        [
            ("stage", pa.string()),
            ("service", pa.string()),
            ("name", pa.string()),
            ("edge", pa.string()),
            ("ns", pa.uint64()),
        ]
    )
)


def requests_table(store: Store, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of `requests`; columns a row lacks are zero, empty or null. Times are Unix ns."""
    arrays, names = [], []
    for column in store.query("DESCRIBE TABLE requests"):
        name, declared = column["name"], column["type"]
        if column["default_type"] and not any(name in row for row in rows):
            continue
        optional = declared.startswith("Nullable(")
        kind = _SCALARS.get(declared[9:-1] if optional else declared, _PATH)
        empty = None if optional else [] if pa.types.is_list(kind) else "" if pa.types.is_string(kind) else 0
        values = [row.get(name, empty) for row in rows]
        if kind == pa.timestamp("ms", "UTC"):
            values = [int(value) // 1_000_000 if value else 0 for value in values]
        if kind == pa.bool_():
            values = [bool(value) for value in values]
        arrays.append(pa.array(values, kind))
        names.append(name)
    return pa.Table.from_arrays(arrays, names)


def request(number: int, *, duration_ns: int, end_ns: int | None = None, **columns: Any) -> dict[str, Any]:
    """One row: an ok root request of service `api` unless told otherwise, with its time in UnexplainedNs minus
    given stages.
    """
    end = end_ns if end_ns is not None else T0 + number * SECOND
    staged = sum(
        value
        for name, value in columns.items()
        if name.endswith("Ns") and not name.startswith(("Ttft", "Tpot")) and "Ttft" not in name
    )
    return {
        "Start": end - duration_ns,
        "End": end,
        "TraceId": f"{number:032x}",
        "SpanId": f"{number:016x}",
        "Service": "api",
        "Name": "POST /v1/chat",
        "Route": "/v1/chat",
        "Kind": "request",
        "IsRoot": True,
        "DurationNs": duration_ns,
        "Outcome": "ok",
        "Streaming": "true",
        "N": 1,
        "Attempts": 1,
        "Model": "m",
        "SampleWeight": 1,
        "SpanCount": 3,
        "UnexplainedNs": duration_ns - staged,
        "ReceivedAt": end + SECOND,
        "Sign": 1,
        "Revision": 1,
        **columns,
    }


def insert_requests(store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; the rollups follow by themselves."""
    store.insert_arrow("judged", requests_table(store, rows))


def insert_traces(store: Store, folder: Path, bodies: Iterable[bytes], token: str) -> None:
    """Insert OTLP bodies as the pipeline would."""
    path = folder / f"{token}.otlp"
    path.write_bytes(b"".join(frame(body) + body for body in bodies))
    store.insert_segment("traces", path, token)


def judge_traces(store: Store, trace_ids: Iterable[str]) -> None:
    """Judge stored traces and write their rows."""
    rows = [
        {**one.row, "Sign": 1, "Revision": 1} for trace in trace_ids for one in judge_spans(read_trace(store, trace))
    ]
    insert_requests(store, rows)

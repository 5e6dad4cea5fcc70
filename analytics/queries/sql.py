"""Ad hoc SQL over the store, read-only, with row and time limits: what `tailtrace sql` sends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

MAX_ROWS: Final = 10_000
_STRINGS_AND_COMMENTS: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/|#[!\s][^\n]*", re.DOTALL)
_FIRST_WORD: Final = re.compile(r"^\s*\(*\s*([a-z]+)", re.IGNORECASE)
_READS: Final = frozenset({"select", "with", "show", "describe", "desc", "explain", "exists"})
# Reading outside the database (files, sockets, servers) is refused: the engine's readonly mode does not stop all of it.
_OUTSIDE: Final = re.compile(
    r"\b(file|url|urlCluster|s3|s3Cluster|gcs|hdfs|hdfsCluster|azureBlobStorage\w*|remote|remoteSecure|cluster\w*|executable|mysql|postgresql"
    r"|mongodb|redis|sqlite|odbc|jdbc|input|hudi|iceberg\w*|deltaLake\w*|paimon\w*|python|fileCluster|dictionary|ytsaurus|arrowflight\w*|fuzz\w*"
    r"|catboostEvaluate|sleep|sleepEachRow)[`\"]?\s*\(",
    re.IGNORECASE,
)
# Other ways to quote, that would let a text hide from the two patterns above.
_QUOTING: Final = re.compile("\\$\\w*\\$|[\u2018\u2019\u201c\u201d]")
_OTHER: Final = re.compile(r"\bINTO\s+OUTFILE\b|\bSETTINGS\b|\bFORMAT\s+\w+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """Rows as lists in the order of `columns`. `truncated`: there were more than the limit."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


def run_sql(
    store: Store, statement: str, parameters: Mapping[str, Any] | None = None, *, limit: int = 1000, seconds: float = 30
) -> SqlAnswer:
    """Run one SELECT. Raises Rejected for anything that writes, reaches outside the database or sets limits of its
    own.
    """
    text = checked(statement)
    if not 1 <= limit <= MAX_ROWS:
        raise Rejected(f"limit is 1 to {MAX_ROWS}; got {limit}")
    settings = {
        "max_execution_time": max(1, min(60, int(seconds))),
        "max_result_rows": limit + 1,
        "result_overflow_mode": "break",
        "max_block_size": 8192,
        "readonly": 1,
    }
    table = store.query_arrow(text, parameters, role="ui", settings=settings)
    columns = list(table.column_names)
    kept = _whole_microseconds(table.slice(0, limit)).to_pylist()
    return SqlAnswer(columns, [[_plain(row[column]) for column in columns] for row in kept], table.num_rows > limit)


def _whole_microseconds(table: pa.Table) -> pa.Table:
    """Times as Python can hold them; who needs the nanoseconds selects toUnixTimestamp64Nano."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            table = table.set_column(at, field.name, table[at].cast(pa.timestamp("us", field.type.tz), safe=False))
    return table


def checked(statement: str) -> str:
    """The statement without its closing semicolon. Raises Rejected with the reason when it is not a plain read."""
    text = statement.strip().rstrip(";").strip()
    bare = _STRINGS_AND_COMMENTS.sub(" ", text)
    if _QUOTING.search(text) or "\\" in bare:
        raise Rejected("quote with plain single quotes; $$, curly quotes and escapes in names are not accepted here")
    first = _FIRST_WORD.match(bare)
    if first is None or first[1].lower() not in _READS:
        raise Rejected("only SELECT, WITH, SHOW, DESCRIBE, EXPLAIN and EXISTS are accepted here")
    if ";" in bare:
        raise Rejected("one statement at a time; remove the semicolon in the middle")
    outside = _OUTSIDE.search(bare)
    if outside is not None:
        raise Rejected(f"{outside[1]}() reaches outside the database and is not accepted here")
    other = _OTHER.search(bare)
    if other is not None:
        raise Rejected(f"{other[0].split()[0].upper()} is not accepted here: limits and format are this endpoint's own")
    return text


def _plain(value: Any) -> Any:
    """A value JSON can hold: times as ISO 8601, bytes as text, everything else as it is."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

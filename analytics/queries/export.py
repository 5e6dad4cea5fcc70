"""A list of requests as a file: CSV that no spreadsheet runs, or JSON; with how many there were in all."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tailtrace.analytics.queries.json import to_json
from tailtrace.analytics.queries.request_filter import RequestFilter
from tailtrace.analytics.queries.request_row import RequestRow
from tailtrace.analytics.queries.requests import MAX_LIMIT, list_requests
from tailtrace.ingest.store import Store
from tailtrace.stages import NAMES

MAX_ROWS: Final = 20_000
_PLAIN: Final = (
    "trace_id", "span_id", "service", "name", "route", "is_root", "kind", "start_unix_ns", "duration_ns", "ttft_ns",
    "tpot_ns", "outcome", "error_type", "streaming", "input_tokens", "output_tokens", "cached_tokens", "n", "model",
    "version", "engine", "replica", "tenant", "request_id", "simulated", "unexplained_ns",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def pages(store: Store, wanted: RequestFilter, rows: int = MAX_ROWS) -> Iterator[Sequence[RequestRow]]:
    """The rows of a list page by page, at most `rows` of them."""
    cursor, left = None, rows
    while left > 0:
        found = list_requests(store, replace(wanted, limit=min(MAX_LIMIT, left), cursor=cursor))
        yield found.requests
        left -= len(found.requests)
        cursor = found.next
        if cursor is None:
            return


def csv_lines(store: Store, wanted: RequestFilter, rows: int = MAX_ROWS) -> Iterator[str]:
    """A header and a line a request; stages in ns, one column each."""
    yield _csv([*_PLAIN, *(f"{stage}_ns" for stage in NAMES)])
    for page in pages(store, wanted, rows):
        for row in page:
            spent = {part.stage: part.duration_ns for part in row.stages}
            yield _csv([*(getattr(row, name) for name in _PLAIN), *(spent.get(stage, 0) for stage in NAMES)])


def json_lines(store: Store, wanted: RequestFilter, rows: int = MAX_ROWS) -> Iterator[bytes]:
    """One JSON object a line."""
    for page in pages(store, wanted, rows):
        for row in page:
            yield to_json(row) + b"\n"


def _csv(values: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([safe(value) for value in values])
    return line.getvalue()


def safe(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front."""
    if value is None:
        return ""
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA) else value

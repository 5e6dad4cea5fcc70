"""Rows of one stored table over a time range, read in pages through the server's read-only SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tailtrace.cli.client import ApiClient

PAGE: Final = 10_000
"""Rows of one answer."""

_MINUTE_NS: Final = 60 * 10**9


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows: by time in Unix ns, both ends included, by service and by trace; an empty one leaves nothing out."""

    since_ns: int = 0
    until_ns: int = 2**63 - 1
    service: str = ""
    traces: Sequence[str] = ()

    def parameters(self) -> dict[str, Any]:
        """As the statements name them."""
        return {
            "since": self.since_ns, "until": self.until_ns, "service": self.service, "traces": list(self.traces),
        }  # fmt: skip


def attributes(pairs: Any) -> list[dict[str, Any]]:
    """A stored map as OTLP/JSON attributes, all of them text."""
    items = pairs.items() if isinstance(pairs, dict) else pairs
    return [{"key": key, "value": {"stringValue": value}} for key, value in items]


def double(text: str) -> float | str:
    """A number that came as text, as protobuf's JSON wants it: NaN and the infinities stay text."""
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text) or float(text)


def ask(api: ApiClient, sql: str, parameters: dict[str, Any]) -> list[list[Any]]:
    """Rows of one statement, at most a page of them."""
    asked = {"sql": sql, "parameters": parameters, "limit": PAGE, "seconds": 60}
    rows: list[list[Any]] = api.post("sql", asked)["rows"]
    return rows


def pages(api: ApiClient, table: str, time: str, columns: str, selection: Selection) -> Iterator[list[list[Any]]]:
    """The selected rows of a table in order of their column `time`, at most a page at once.

    `table`, `time` and `columns` are the program's own words, never a user's. A table without traces has none selected.
    """
    where = (
        f"(empty({{service:String}}) OR {'Service' if table == 'engine_steps' else 'ServiceName'} = {{service:String}})"
    )
    if selection.traces:
        where += " AND TraceId IN {traces:Array(String)}"
    where += (
        f" AND {time} >= fromUnixTimestamp64Nano({{since:Int64}}, 'UTC')"
        f" AND {time} <= fromUnixTimestamp64Nano({{until:Int64}}, 'UTC')"
    )
    rows = (
        f"SELECT {columns} FROM {table} WHERE {where} ORDER BY {time}, cityHash64(*)"
        " LIMIT {size:UInt32} OFFSET {at:UInt64}"
    )
    for since, until in _windows(api, table, time, where, selection):
        given = {**selection.parameters(), "since": since, "until": until, "size": PAGE}
        at = 0
        while found := ask(api, rows, {**given, "at": at}):
            yield found
            at += len(found)
            if len(found) < PAGE:
                break


def _windows(api: ApiClient, table: str, time: str, where: str, selection: Selection) -> Iterator[tuple[int, int]]:
    """Neighbouring minutes that hold about a page together, so that no page is far from the start of its query."""
    minutes = (
        f"SELECT intDiv(toUnixTimestamp64Nano({time}), {_MINUTE_NS}) AS minute, count() FROM {table} WHERE {where}"
        " GROUP BY minute HAVING minute > {after:Int64} ORDER BY minute"
    )
    after, first, held = -1, -1, 0
    while counted := ask(api, minutes, {**selection.parameters(), "after": after}):
        for minute, count in ((int(row[0]), int(row[1])) for row in counted):
            if first >= 0 and held + count > PAGE:
                yield _bounds(first, after, selection)
                first, held = -1, 0
            first, held, after = (minute if first < 0 else first), held + count, minute
        if len(counted) < PAGE:
            break
    if first >= 0:
        yield _bounds(first, after, selection)


def _bounds(first: int, last: int, selection: Selection) -> tuple[int, int]:
    return max(first * _MINUTE_NS, selection.since_ns), min((last + 1) * _MINUTE_NS - 1, selection.until_ns)

"""Lists of requests: filtered, newest first or ordered by a time or any stage, paged by key, with the total."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tailtrace.analytics.queries.request_filter import RequestFilter, parameters, where
from tailtrace.analytics.queries.request_row import LIST_COLUMNS, RequestRow, request_row
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store
from tailtrace.stages import STAGES, UNEXPLAINED

MAX_LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class RequestList:
    """A page of `requests`; `total` counts all that match, `next` is the cursor of the page after it."""

    requests: list[RequestRow]
    total: int
    next: str | None
    order: str
    since_unix_ns: str | None
    until_unix_ns: str | None


_KEY: Final[dict[str, str]] = {
    "newest": "toUnixTimestamp64Nano(End)",
    "slowest": "toInt64(DurationNs)",
    "ttft": "toInt64(ifNull(TtftNs, 0))",
    "tpot": "toInt64(ifNull(TpotNs, 0))",
    **{stage.name: f"toInt64({stage.column}Ns)" for stage in STAGES},
    UNEXPLAINED: "toInt64(UnexplainedNs)",
}
ORDERS: Final = tuple(_KEY)
# Coarse groups of the sort key: a minute, or a log bucket. They tell where the page ends before anything wide is read,
# and whether rows that were taken back, or their copies, stand before that.
_MINUTE: Final = "toInt64(toUnixTimestamp(toStartOfMinute(End)))"
_BUCKET: Final = "toInt64(floor(log(greatest({key}, 1)) / log(1.02)))"
_AFTER: Final = "({key}, TraceId, SpanId) < ({after_key:Int64}, {after_trace:String}, {after_span:String})"
_GROUPS: Final = (
    "SELECT {group} AS g, sum(Sign) AS n, sumIf(Sign, {after}) AS left, countIf(Sign < 0) AS taken_back FROM requests"
    " {where} GROUP BY g HAVING n > 0 OR taken_back > 0 ORDER BY g DESC"
)
# The page at once, where nothing was taken back: ClickHouse reads what is wide of the rows that are left alone.
_PAGE: Final = (
    f"SELECT {', '.join(LIST_COLUMNS)}, toUnixTimestamp64Nano(Start) AS StartNs, Revision, Sign, {{key}} AS k"
    " FROM requests"
    " {where} AND {group} >= {bound:Int64} AND {after} ORDER BY k DESC, TraceId DESC, SpanId DESC LIMIT {limit:UInt32}"
)
_KEYS: Final = (
    "SELECT TraceId, SpanId, {key} AS k, toUnixTimestamp64Nano(End) AS end_ns, Revision FROM requests {where}"
    " AND {group} >= {bound:Int64} AND {after}"
    " GROUP BY TraceId, SpanId, k, end_ns, Revision HAVING sum(Sign) > 0"
    " ORDER BY k DESC, TraceId DESC, SpanId DESC LIMIT {limit:UInt32}"
)
_ROWS: Final = (
    f"SELECT {', '.join(LIST_COLUMNS)}, toUnixTimestamp64Nano(Start) AS StartNs, Revision FROM requests"
    " WHERE toStartOfMinute(End) IN"
    " (SELECT toStartOfMinute(fromUnixTimestamp64Nano(arrayJoin({ends:Array(Int64)}), 'UTC')))"
    " AND End >= fromUnixTimestamp64Nano({first:Int64}, 'UTC') AND End <= fromUnixTimestamp64Nano({last:Int64}, 'UTC')"
    " AND TraceId IN {traces:Array(String)} AND Sign = 1"
)


def list_requests(store: Store, wanted: RequestFilter) -> RequestList:
    """One page. Raises Rejected for a limit outside 1 to 1,000 or a cursor of another list."""
    if not 1 <= wanted.limit <= MAX_LIMIT:
        raise Rejected(f"limit is 1 to {MAX_LIMIT}; got {wanted.limit}")
    if wanted.order not in _KEY:
        raise Rejected(f"there is no order {wanted.order[:40]!r}; there are {', '.join(ORDERS)}")
    values = _parameters(wanted)
    total, bound, plain = _page_bound(store, wanted, values)
    page: list[RequestRow] = []
    cursor = None
    if total and bound is not None:
        values |= {"bound": bound, "limit": wanted.limit + 1}
        keys = _plain_page(store, wanted, values) if plain else None
        if keys is None:
            keys = store.query(_sql(_KEYS, wanted), values, role="ui")
            page = _rows(store, keys[: wanted.limit])
        else:
            page = [request_row(row) for row in keys[: wanted.limit]]
        if len(keys) > wanted.limit:
            last = keys[wanted.limit - 1]
            cursor = encode_cursor(wanted.order, int(last["k"]), last["TraceId"], last["SpanId"])
    return RequestList(page, total, cursor, wanted.order, _text(wanted.since_ns), _text(wanted.until_ns))


def _page_bound(store: Store, wanted: RequestFilter, values: dict[str, Any]) -> tuple[int, int | None, bool]:
    """How many match, the lowest group that this page reaches into (None when nothing is left), and whether nothing was
    taken back in the groups down to it.
    """
    total, left, bound, plain = 0, 0, None, True
    for row in store.query(_sql(_GROUPS, wanted), values, role="ui"):
        total += max(0, int(row["n"]))
        if left <= wanted.limit:
            plain = plain and not int(row["taken_back"])
            if int(row["left"]) > 0:
                bound = int(row["g"])
                left += int(row["left"])
    return total, bound, plain


def _plain_page(store: Store, wanted: RequestFilter, values: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of a page, one more than it shows; None where one is stored twice or has been taken back meanwhile."""
    rows = store.query(_sql(_PAGE, wanted), values, role="ui")
    distinct = {(row["TraceId"], row["SpanId"], row["Revision"]) for row in rows if int(row["Sign"]) > 0}
    return rows if len(distinct) == len(rows) else None


def _rows(store: Store, keys: Sequence[dict[str, Any]]) -> list[RequestRow]:
    """The rows of sorted keys, in the keys' order."""
    if not keys:
        return []
    ends = [int(key["end_ns"]) for key in keys]
    found = store.query(
        _ROWS,
        {"ends": ends, "first": min(ends), "last": max(ends), "traces": sorted({key["TraceId"] for key in keys})},
        role="ui",
    )
    by_key = {(row["TraceId"], row["SpanId"], row["Revision"]): row for row in found}
    wanted = [(key["TraceId"], key["SpanId"], key["Revision"]) for key in keys]
    return [request_row(by_key[key]) for key in wanted if key in by_key]


def _sql(template: str, wanted: RequestFilter) -> str:
    """A template with its constants in place; what users sent only ever travels as parameters."""
    group = _MINUTE if wanted.order == "newest" else _BUCKET
    # The first page comes after nothing: then no id is read to tell.
    after = _AFTER if wanted.cursor else "true"
    filled = template.replace("{where}", where(wanted)).replace("{after}", after).replace("{group}", group)
    return filled.replace("{key}", _KEY[wanted.order])


def _parameters(wanted: RequestFilter) -> dict[str, Any]:
    after = decode_cursor(wanted.cursor, wanted.order) if wanted.cursor else ((1 << 63) - 1, "~", "~")
    return {**parameters(wanted), "after_key": after[0], "after_trace": after[1], "after_span": after[2]}


def encode_cursor(order: str, key: int, trace_id: str, span_id: str) -> str:
    """An opaque text that names the last row of a page."""
    return base64.urlsafe_b64encode(orjson.dumps([order, key, trace_id, span_id])).decode().rstrip("=")


def decode_cursor(text: str, order: str) -> tuple[int, str, str]:
    """The key in a cursor. Raises Rejected when it is not one of this order."""
    try:
        made_for, key, trace_id, span_id = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if made_for == order and isinstance(key, int) and isinstance(trace_id, str) and isinstance(span_id, str):
            return key, trace_id, span_id
    except (ValueError, TypeError, binascii.Error, UnicodeError):
        pass
    raise Rejected("cursor is not one that this list returned; leave it out to start at the first page")


def _text(unix_ns: int | None) -> str | None:
    return None if unix_ns is None else str(unix_ns)

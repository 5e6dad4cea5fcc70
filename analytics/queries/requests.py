"""Lists of requests: filtered, newest or slowest first, paged by key, with the total that matches."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from tailtrace.analytics.queries.request_row import LIST_COLUMNS, RequestRow, request_row
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store

Order = Literal["newest", "slowest"]


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """What to list. Empty text and None mean "any"; times are Unix ns of a request's end, `until_ns` exclusive."""

    service: str = ""
    model: str = ""
    route: str = ""
    outcome: str = ""
    version: str = ""
    kind: str = "request"
    is_root: bool | None = True
    min_duration_ns: int | None = None
    max_duration_ns: int | None = None
    text: str = ""
    since_ns: int | None = None
    until_ns: int | None = None
    order: Order = "newest"
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class RequestList:
    """A page of `requests`; `total` counts all that match, `next` is the cursor of the page after it."""

    requests: list[RequestRow]
    total: int
    next: str | None
    order: str
    since_unix_ns: str | None
    until_unix_ns: str | None


_WHERE: Final = """
WHERE ({kind:String} = '' OR Kind = {kind:String}) AND ({service:String} = '' OR Service = {service:String})
  AND ({model:String} = '' OR Model = {model:String}) AND ({route:String} = '' OR Route = {route:String})
  AND ({outcome:String} = '' OR Outcome = {outcome:String}) AND ({version:String} = '' OR Version = {version:String})
  AND ({root:Int8} < 0 OR IsRoot = ({root:Int8} = 1))
  AND DurationNs >= {min_duration:UInt64} AND DurationNs <= {max_duration:UInt64}
  AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND ({text:String} = ''
    OR positionCaseInsensitiveUTF8(Name, {text:String}) > 0 OR positionCaseInsensitiveUTF8(Route, {text:String}) > 0
    OR startsWith(TraceId, lower({text:String})) OR positionCaseInsensitiveUTF8(RequestId, {text:String}) > 0)
"""
_KEY: Final[dict[Order, str]] = {"newest": "toUnixTimestamp64Nano(End)", "slowest": "toInt64(DurationNs)"}
# Coarse groups of the sort key: a minute, or a log bucket. They tell where the page ends before anything wide is read.
_GROUP: Final[dict[Order, str]] = {
    "newest": "toInt64(toUnixTimestamp(toStartOfMinute(End)))",
    "slowest": "toInt64(floor(log(greatest(DurationNs, 1)) / log(1.02)))",
}
_AFTER: Final = "({key}, TraceId, SpanId) < ({after_key:Int64}, {after_trace:String}, {after_span:String})"
_GROUPS: Final = (
    "SELECT {group} AS g, sum(Sign) AS n, sumIf(Sign, {after}) AS left FROM requests {where}"
    " GROUP BY g HAVING n > 0 ORDER BY g DESC"
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
    if not 1 <= wanted.limit <= 1000:
        raise Rejected(f"limit is 1 to 1000; got {wanted.limit}")
    parameters = _parameters(wanted)
    total, bound = _page_bound(store, wanted, parameters)
    page: list[RequestRow] = []
    cursor = None
    if total and bound is not None:
        keys = store.query(
            _sql(_KEYS, wanted.order), {**parameters, "bound": bound, "limit": wanted.limit + 1}, role="ui"
        )
        page = _rows(store, keys[: wanted.limit])
        if len(keys) > wanted.limit:
            last = keys[wanted.limit - 1]
            cursor = encode_cursor(wanted.order, int(last["k"]), last["TraceId"], last["SpanId"])
    return RequestList(page, total, cursor, wanted.order, _text(wanted.since_ns), _text(wanted.until_ns))


def _page_bound(store: Store, wanted: RequestFilter, parameters: dict[str, Any]) -> tuple[int, int | None]:
    """How many match, and the lowest group that this page reaches into (None when nothing is left)."""
    total, left, bound = 0, 0, None
    for row in store.query(_sql(_GROUPS, wanted.order), parameters, role="ui"):
        total += int(row["n"])
        if left <= wanted.limit and int(row["left"]) > 0:
            bound = int(row["g"])
            left += int(row["left"])
    return total, bound


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


def _sql(template: str, order: Order) -> str:
    """A template with its constants in place; what users sent only ever travels as parameters."""
    filled = template.replace("{where}", _WHERE).replace("{after}", _AFTER)
    return filled.replace("{key}", _KEY[order]).replace("{group}", _GROUP[order])


def _parameters(wanted: RequestFilter) -> dict[str, Any]:
    after = decode_cursor(wanted.cursor, wanted.order) if wanted.cursor else ((1 << 63) - 1, "~", "~")
    return {
        "kind": wanted.kind,
        "service": wanted.service,
        "model": wanted.model,
        "route": wanted.route,
        "outcome": wanted.outcome,
        "version": wanted.version,
        "root": -1 if wanted.is_root is None else int(wanted.is_root),
        "min_duration": wanted.min_duration_ns or 0,
        "max_duration": (1 << 64) - 1 if wanted.max_duration_ns is None else wanted.max_duration_ns,
        "since": wanted.since_ns or 0,
        "until": (1 << 62) if wanted.until_ns is None else wanted.until_ns,
        "text": wanted.text,
        "after_key": after[0],
        "after_trace": after[1],
        "after_span": after[2],
    }


def encode_cursor(order: Order, key: int, trace_id: str, span_id: str) -> str:
    """An opaque text that names the last row of a page."""
    return base64.urlsafe_b64encode(orjson.dumps([order, key, trace_id, span_id])).decode().rstrip("=")


def decode_cursor(text: str, order: Order) -> tuple[int, str, str]:
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

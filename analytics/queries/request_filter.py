"""Which requests a list, a heatmap or facets are about, as SQL with parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tailtrace.analytics.queries.attribute_search import conditions, parse_terms


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """What to list. Empty text and None mean "any"; times are Unix ns of a request's end, `until_ns` exclusive.

    `attributes` is a search as in `attribute_search`; `order` is newest, slowest, ttft, tpot or the name of a stage.
    """

    service: str = ""
    model: str = ""
    route: str = ""
    outcome: str = ""
    version: str = ""
    replica: str = ""
    tenant: str = ""
    kind: str = "request"
    is_root: bool | None = True
    min_duration_ns: int | None = None
    max_duration_ns: int | None = None
    text: str = ""
    attributes: str = ""
    since_ns: int | None = None
    until_ns: int | None = None
    order: str = "newest"
    limit: int = 50
    cursor: str | None = None


# A field's condition. Only those that are asked for are said: planning all of them takes longer than most answers.
_GIVEN: Final = {
    "kind": "Kind = {kind:String}",
    "service": "Service = {service:String}",
    "model": "Model = {model:String}",
    "route": "Route = {route:String}",
    "outcome": "Outcome = {outcome:String}",
    "version": "Version = {version:String}",
    "replica": "Replica = {replica:String}",
    "tenant": "Tenant = {tenant:String}",
    "min_duration_ns": "DurationNs >= {min_duration:UInt64}",
    "text": "(positionCaseInsensitiveUTF8(Name, {text:String}) > 0"
    " OR positionCaseInsensitiveUTF8(Route, {text:String}) > 0"
    " OR startsWith(TraceId, lower({text:String})) OR positionCaseInsensitiveUTF8(RequestId, {text:String}) > 0)",
}
_NOT_NONE: Final = {
    "is_root": "IsRoot = ({root:Int8} = 1)",
    "max_duration_ns": "DurationNs <= {max_duration:UInt64}",
}
_TIMES: Final = (
    "WHERE End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
)


def where(wanted: RequestFilter) -> str:
    """The WHERE clause on `requests`. Raises Rejected for a search that cannot be read."""
    parts = [sql for name, sql in _GIVEN.items() if getattr(wanted, name)]
    parts += [sql for name, sql in _NOT_NONE.items() if getattr(wanted, name) is not None]
    searched, _ = conditions(parse_terms(wanted.attributes), wanted.since_ns, wanted.until_ns)
    return "\n  AND ".join([_TIMES, *parts, *searched])


def parameters(wanted: RequestFilter) -> dict[str, Any]:
    """The parameters that `where` names."""
    _, searched = conditions(parse_terms(wanted.attributes), wanted.since_ns, wanted.until_ns)
    return {
        "kind": wanted.kind,
        "service": wanted.service,
        "model": wanted.model,
        "route": wanted.route,
        "outcome": wanted.outcome,
        "version": wanted.version,
        "replica": wanted.replica,
        "tenant": wanted.tenant,
        "root": -1 if wanted.is_root is None else int(wanted.is_root),
        "min_duration": wanted.min_duration_ns or 0,
        "max_duration": (1 << 64) - 1 if wanted.max_duration_ns is None else wanted.max_duration_ns,
        "since": wanted.since_ns or 0,
        "until": (1 << 62) if wanted.until_ns is None else wanted.until_ns,
        "text": wanted.text,
        **searched,
    }

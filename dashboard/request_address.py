"""From the address to the requests it asks for."""

from __future__ import annotations

from typing import Final

from tailtrace.analytics.queries import RequestFilter, Window
from tailtrace.analytics.queries.requests import ORDERS
from tailtrace.analytics.queries.window import parse_time
from tailtrace.dashboard.address import Address
from tailtrace.dashboard.format import parse_duration

PAGE: Final = 50


def filter_of(address: Address, window: Window | None) -> RequestFilter:
    """What the address asks to list: to the nanosecond where it says so, else over the window's whole minutes."""
    since = parse_time(address.since) if window and address.since else window.since_ns if window else None
    until = parse_time(address.until) if window and address.until else window.until_ns if window else None
    return RequestFilter(
        service=address.service,
        model=address.model,
        route=address.route,
        outcome=address.outcome,
        version=address.version,
        replica=address.replica,
        tenant=address.tenant,
        kind=address.kind or "request",
        is_root=address.is_root,
        min_duration_ns=parse_duration(address.min),
        max_duration_ns=parse_duration(address.max),
        text=address.text,
        attributes=address.where,
        since_ns=since,
        until_ns=until,
        order=address.order if address.order in ORDERS else "newest",
        limit=PAGE,
        cursor=address.cursor or None,
    )

"""How complete the picture is: up to when each service is judged, and what was rejected, dropped or orphaned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.freshness import FLOOR_NS, watermark_ns
from tailtrace.analytics.queries.window import HOUR_NS
from tailtrace.ingest.store import Store


@dataclass(frozen=True, slots=True)
class ServiceFreshness:
    """Charts and alerts stop at `complete_until_unix_ns`: later requests may still be on their way. Rates are of the
    last five minutes of the store's data.
    """

    service: str
    newest_unix_ns: str
    lag_p99_ns: int
    complete_until_unix_ns: str | None
    requests_per_second: float
    spans_per_second: float


@dataclass(frozen=True, slots=True)
class Loss:
    """Spans, points or records that are missing, by kind and reason: of the last 24 h before the newest loss; what
    clients dropped, since they began; requests of the last hour in which a span's parent never came.
    """

    service: str
    signal: str
    kind: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Freshness:
    """`complete_until_unix_ns` is the earliest of the services that received anything in the last hour of data."""

    judged_up_to_unix_ns: str | None
    newest_unix_ns: str | None
    complete_until_unix_ns: str | None
    services: list[ServiceFreshness]
    losses: list[Loss]
    rejected: int
    dropped: int
    orphaned: int


_RECENT_NS: Final = 300_000_000_000
_LAGS: Final = """
SELECT Service AS service, toUnixTimestamp64Nano(max(End)) AS newest,
  countIf(Sign = 1 AND NOT has(Flags, 'backfill')) AS n,
  toInt64(quantileExactIf(0.99)(
    greatest(0, toUnixTimestamp64Nano(toDateTime64(ReceivedAt, 9, 'UTC')) - toUnixTimestamp64Nano(End)),
    Sign = 1 AND NOT has(Flags, 'backfill'))) AS lag,
  toInt64(sumIf(Sign, End >= fromUnixTimestamp64Nano({recent:Int64}, 'UTC'))) AS requests,
  toInt64(sumIf(Sign * toInt64(SpanCount), End >= fromUnixTimestamp64Nano({recent:Int64}, 'UTC'))) AS spans,
  toInt64(sumIf(Sign, hasAny(Flags, ['parent_missing', 'orphans']))) AS orphaned
FROM requests WHERE End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')
GROUP BY Service ORDER BY Service LIMIT 500
"""
_LOSSES: Final = """
SELECT Service AS service, Signal AS signal, Kind AS kind, Reason AS reason, sum(Count) AS count FROM losses
WHERE Time >= (SELECT max(Time) FROM losses) - INTERVAL 1 DAY AND Kind != 'client_dropped'
GROUP BY service, signal, kind, reason ORDER BY count DESC LIMIT 200
"""
_DROPPED: Final = "SELECT Service AS service, Reason AS reason, Dropped AS count FROM client_losses_total LIMIT 200"
_NEWEST: Final = "SELECT toUnixTimestamp64Nano(max(End)) AS newest, count() AS n FROM requests"


def freshness(store: Store) -> Freshness:
    """`complete_until` = watermark - max(5 s, P99 of receive delay over the last hour of data), per service."""
    watermark = watermark_ns(store)
    newest_rows = store.query(_NEWEST, role="ui")
    newest = int(newest_rows[0]["newest"]) if newest_rows and newest_rows[0]["n"] else None
    entries = []
    losses = []
    if newest is not None:
        for row in store.query(_LAGS, {"since": newest - HOUR_NS, "recent": newest - _RECENT_NS}, role="ui"):
            lag = int(row["lag"]) if row["n"] else 0
            complete = watermark - max(FLOOR_NS, lag) if watermark is not None else None
            entries.append(
                ServiceFreshness(
                    row["service"], str(int(row["newest"])), lag, str(complete) if complete is not None else None,
                    1e9 * int(row["requests"]) / _RECENT_NS, 1e9 * int(row["spans"]) / _RECENT_NS,
                )
            )  # fmt: skip
            if row["orphaned"] > 0:
                losses.append(Loss(row["service"], "spans", "orphaned", "parent_missing", int(row["orphaned"])))
    losses += [
        Loss(row["service"], row["signal"], row["kind"], row["reason"], int(row["count"]))
        for row in store.query(_LOSSES, role="ui")
    ]
    losses += [
        Loss(row["service"], "spans", "client_dropped", row["reason"], int(row["count"]))
        for row in store.query(_DROPPED, role="ui")
    ]
    known = [int(entry.complete_until_unix_ns) for entry in entries if entry.complete_until_unix_ns]
    return Freshness(
        judged_up_to_unix_ns=str(watermark) if watermark is not None else None,
        newest_unix_ns=str(newest) if newest is not None else None,
        complete_until_unix_ns=str(min(known)) if known else None,
        services=entries,
        losses=losses,
        rejected=_total(losses, "rejected"),
        dropped=_total(losses, "client_dropped"),
        orphaned=_total(losses, "orphaned"),
    )


def _total(losses: list[Loss], kind: str) -> int:
    return sum(loss.count for loss in losses if loss.kind == kind)

"""Whether each service's telemetry says anything now: requests come, none do, nothing does, or some of it is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tailtrace.ingest.store import Store

State = Literal["ok", "no_traffic", "no_telemetry", "incomplete"]
LOOK_BACK_S: Final = 86_400
"""A service that was quiet for longer is taken as gone."""
LOSS_S: Final = 3600
MS: Final = 1_000_000
_LAST_REQUEST: Final = """
SELECT Service AS service, toInt64(toUnixTimestamp64Milli(max(ReceivedAt))) AS received_ms FROM requests
WHERE toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC') AND Sign = 1
GROUP BY service ORDER BY service LIMIT 1000
"""
# Whatever else a service sends shows that it is there: counters, logs.
_LAST_OTHER: Final = """
SELECT service, max(received_ms) AS received_ms FROM (
  SELECT ServiceName AS service, toInt64(toUnixTimestamp64Milli(max(ReceivedAt))) AS received_ms FROM otel_metrics_gauge
  WHERE TimeUnix >= toDateTime64({since:Int64}, 9, 'UTC') AND ServiceName IN {services:Array(String)} GROUP BY service
  UNION ALL
  SELECT ServiceName AS service, toInt64(toUnixTimestamp64Milli(max(ReceivedAt))) AS received_ms FROM otel_metrics_sum
  WHERE TimeUnix >= toDateTime64({since:Int64}, 9, 'UTC') AND ServiceName IN {services:Array(String)} GROUP BY service
  UNION ALL
  SELECT ServiceName AS service, toInt64(toUnixTimestamp64Milli(max(ReceivedAt))) AS received_ms FROM otel_logs
  WHERE Timestamp >= toDateTime64({since:Int64}, 9, 'UTC') AND ServiceName IN {services:Array(String)} GROUP BY service
) GROUP BY service
"""
# A count since the instance began: what was lost lately is the newest less what it was before.
_DROPPED: Final = """
SELECT Service AS service, toInt64(sum(lost)) AS lost FROM (
  SELECT Service, max(Dropped) - maxIf(Dropped, Minute < toDateTime64({since:Int64}, 0, 'UTC')) AS lost
  FROM client_losses WHERE Signal = 'traces' AND Minute >= toDateTime64({day:Int64}, 0, 'UTC')
  GROUP BY Service, Instance, Reason
) GROUP BY service HAVING lost > 0
"""
_SPANS: Final = """
SELECT Service AS service, toInt64(sum(SpanCount * Sign)) AS spans FROM requests
WHERE toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC') GROUP BY service
"""


@dataclass(frozen=True, slots=True)
class TelemetryState:
    """One service of the last day. `ok`: requests came within `after`. `no_traffic`: none came, but something else of
    it did, or nothing else ever does. `no_telemetry`: its counters and logs have stopped too. `incomplete`: requests
    come, and more than `lost` of the last hour's spans were dropped on the way.
    """

    service: str
    state: State
    last_request_unix_ns: str
    last_signal_unix_ns: str
    spans: int
    lost_spans: int
    lost_share: float


@dataclass(frozen=True, slots=True)
class Telemetry:
    """`state` is no_telemetry where nothing has come from any service, else ok."""

    state: State
    telemetry: list[TelemetryState]
    total: int
    next: None


def telemetry(store: Store, now_ms: int, *, after_ms: int = 900_000, lost: float = 0.05) -> Telemetry:
    """The state of every service that sent a request within the last day, as of `now_ms`."""
    now_s = now_ms // 1000
    last = {
        str(row["service"]): int(row["received_ms"])
        for row in store.query(_LAST_REQUEST, {"since": now_s - LOOK_BACK_S}, role="jobs")
    }
    quiet = [service for service, seen in last.items() if now_ms - seen > after_ms]
    others = _others(store, quiet, now_s) if quiet else {}
    hour = now_s - LOSS_S
    dropped = {
        str(row["service"]): int(row["lost"])
        for row in store.query(_DROPPED, {"since": hour, "day": now_s - LOOK_BACK_S}, role="jobs")
    }
    spans = (
        {str(row["service"]): int(row["spans"]) for row in store.query(_SPANS, {"since": hour}, role="jobs")}
        if dropped
        else {}
    )
    found = []
    for service, seen in last.items():
        gone, here = dropped.get(service, 0), spans.get(service, 0)
        share = gone / (gone + here) if gone else 0.0
        other = others.get(service, 0)
        state: State = "incomplete" if share > lost else "ok"
        if now_ms - seen > after_ms:
            silent = other and now_ms - max(other, seen) > after_ms
            state = "no_telemetry" if silent else "no_traffic"
        signal = max(seen, other)
        found.append(TelemetryState(service, state, str(seen * MS), str(signal * MS), here, gone, share))
    newest = max((int(each.last_signal_unix_ns) for each in found), default=0)
    nothing = bool(found) and now_ms * MS - newest > after_ms * MS
    return Telemetry("no_telemetry" if nothing else "ok", found, len(found), None)


def _others(store: Store, services: list[str], now_s: int) -> dict[str, int]:
    """When anything but a request last came from these services, ms; without those that send nothing else."""
    rows = store.query(_LAST_OTHER, {"services": services, "since": now_s - LOOK_BACK_S}, role="jobs")
    return {str(row["service"]): int(row["received_ms"]) for row in rows if row["received_ms"]}

"""Up to when a service's requests are all there: charts and alerts stop at it."""

from __future__ import annotations

from typing import Final

from tailtrace.analytics.jobs.progress import SHARDS, states
from tailtrace.ingest.store import Store

FLOOR_NS: Final = 5_000_000_000
_DELAY: Final = """
SELECT count() AS n, toInt64(quantileExact(0.99)(
  toUnixTimestamp64Nano(toDateTime64(ReceivedAt, 9, 'UTC')) - toUnixTimestamp64Nano(End))) AS delay
FROM requests
WHERE toStartOfMinute(End) >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Service = {service:String} AND Sign = 1
  AND NOT has(Flags, 'backfill')
"""


def watermark_ns(store: Store) -> int | None:
    """All spans received up to this instant (ns since 1970) have been judged; None before the first round."""
    rows = states(store)
    return min(int(row["upto"]) for row in rows) * 1_000_000 if len(rows) == SHARDS else None


def complete_until(store: Store, service: str, *, watermark: int | None = None) -> int | None:
    """The watermark (the jobs' unless given) less max(5 s, P99 of receive time - end over the hour before it), ns since
    1970; None as above.
    """
    watermark = watermark_ns(store) if watermark is None else watermark
    if watermark is None:
        return None
    row = store.query(_DELAY, {"since": watermark - 3_600_000_000_000, "service": service}, role="ui")[0]
    return watermark - max(FLOOR_NS, int(row["delay"]) if row["n"] else 0)

"""The `verdicts` job: judges each service's finished windows against the hour before, and remembers how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tailtrace.analytics.freshness import complete_until
from tailtrace.analytics.queries.json import to_json
from tailtrace.analytics.queries.why import Why, why
from tailtrace.ingest.store import Store

JOB: Final = "verdicts"
WINDOW_NS: Final = 15 * 60_000_000_000
REFERENCE_NS: Final = 3_600_000_000_000
FIRST_REACH: Final = 8  # windows that are judged when there is no watermark yet
ROUND_WINDOWS: Final = 4
_SERVICES: Final = """
SELECT Service, sum(Sign) AS n FROM requests
WHERE toStartOfMinute(End) >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Kind = 'request'
  AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC') GROUP BY Service HAVING n >= 20 ORDER BY n DESC LIMIT 100
"""
_MARK: Final = """
SELECT argMax(toUnixTimestamp64Milli(ReceivedUpTo), UpdatedAt) AS upto, count() AS n
FROM watermarks WHERE Job = {job:String}
"""


@dataclass(frozen=True, slots=True)
class VerdictReport:
    """Windows judged in this call; `behind`: more are finished."""

    windows: int = 0
    behind: bool = False


def run_verdicts(store: Store, *, newest_ns: int | None = None) -> VerdictReport:
    """One round: at most `ROUND_WINDOWS` windows. What a window says depends on stored rows alone, so judging it twice
    writes the same row, and a worker that dies leaves the watermark where it was.
    """
    limit = newest_ns if newest_ns is not None else _finished(store)
    if limit is None:
        return VerdictReport()
    last = limit // WINDOW_NS
    mark = store.query(_MARK, {"job": JOB}, role="jobs")[0]
    begin = int(mark["upto"]) * 1_000_000 // WINDOW_NS if mark["n"] else last - FIRST_REACH
    windows = range(begin, min(last, begin + ROUND_WINDOWS))
    for number in windows:
        judge_windows(store, number * WINDOW_NS)
    if len(windows):
        _advance(store, windows[-1] + 1)
    return VerdictReport(len(windows), begin + len(windows) < last)


def judge_windows(store: Store, since_ns: int) -> int:
    """The window of every service that starts then; gives how many there were."""
    until = since_ns + WINDOW_NS
    services = [row["Service"] for row in store.query(_SERVICES, {"since": since_ns, "until": until}, role="jobs")]
    found = [why(store, service, since_ns, until, reference_ns=REFERENCE_NS) for service in services]
    if found:
        store.insert_arrow("verdicts", _rows(found), token=f"{JOB}/{since_ns}/{len(found)}")
    return len(found)


def _rows(found: list[Why]) -> pa.Table:
    def times(values: list[str]) -> pa.Array:
        return pa.array([int(value) // 1_000_000 for value in values], pa.timestamp("ms", "UTC"))

    verdicts = [one.verdict for one in found]
    return pa.table(
        {
            "Start": times([one.during.since_unix_ns for one in found]),
            "End": times([one.during.until_unix_ns for one in found]),
            "Service": [one.service for one in found],
            "State": [one.state for one in found],
            "Cause": [one.cause if one else "" for one in verdicts],
            "Share": pa.array([one.share if one else 0.0 for one in verdicts], pa.float32()),
            "Confidence": [one.confidence if one else "" for one in verdicts],
            "Relative": pa.array([one.relative for one in found], pa.float32()),
            "Body": [to_json(one).decode() for one in found],
        }
    )


def _finished(store: Store) -> int | None:
    """Up to when every service's requests are there."""
    newest = store.query("SELECT toUnixTimestamp64Nano(max(End)) AS newest, count() AS n FROM requests", role="jobs")[0]
    if not newest["n"]:
        return None
    complete = complete_until(store, "")
    return min(int(newest["newest"]), complete) if complete is not None else None


def _advance(store: Store, number: int) -> None:
    upto = number * WINDOW_NS // 1_000_000
    row = {
        "Job": [JOB],
        "Shard": pa.array([0], pa.uint8()),
        "ReceivedUpTo": pa.array([upto], pa.timestamp("ms", "UTC")),
        "Note": [""],
    }
    store.insert_arrow("watermarks", pa.table(row), token=f"{JOB}.mark/{upto}")

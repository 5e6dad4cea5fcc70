"""Verdicts: those that the job keeps by window, and the one of a single request, found when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson

from tailtrace.analytics.queries.request_row import RequestRow
from tailtrace.analytics.queries.together import together
from tailtrace.analytics.verdicts.judge import judge_request
from tailtrace.analytics.verdicts.observed import Observed
from tailtrace.analytics.verdicts.read import observe
from tailtrace.analytics.verdicts.verdict import Verdict
from tailtrace.ingest.store import Store

REFERENCE_NS: Final = 3_600_000_000_000
# Before and after the request: enough steps of its replica to compare them at the same batch.
_MARGIN_NS: Final = 60_000_000_000
_LIST: Final = """
SELECT Service, toUnixTimestamp64Nano(toDateTime64(Start, 9, 'UTC')) AS since,
  toUnixTimestamp64Nano(toDateTime64(End, 9, 'UTC')) AS until, State, Cause, Share, Confidence, Relative, Body
FROM verdicts FINAL
WHERE Start >= fromUnixTimestamp64Milli({since:Int64}, 'UTC') AND Start < fromUnixTimestamp64Milli({until:Int64}, 'UTC')
  AND ({service:String} = '' OR Service = {service:String}) AND (State = 'slower' OR {all:Bool})
ORDER BY Start DESC, Service LIMIT {limit:UInt64}
"""
_COUNT: Final = _LIST.split("ORDER BY")[0].replace(_LIST.split("FROM")[0], "SELECT count() AS n ").strip()


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """One window of a service as the job judged it; `verdict` is null where nothing was slower."""

    service: str
    since_unix_ns: str
    until_unix_ns: str
    state: str
    relative: float
    verdict: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class VerdictList:
    """Newest first; `next` is null: the list is cut at `limit`."""

    verdicts: list[WindowVerdict]
    total: int
    next: str | None = None


def verdicts(
    store: Store, since_ns: int, until_ns: int, *, service: str = "", everything: bool = False, limit: int = 200
) -> VerdictList:
    """The job's windows that start in [since, until); those that are not slower only with `everything`."""
    parameters = {"since": since_ns // 1_000_000, "until": -(-until_ns // 1_000_000), "service": service,
                  "all": everything, "limit": limit}  # fmt: skip
    rows = store.query(_LIST, parameters, role="ui")
    total = int(store.query(_COUNT, {k: v for k, v in parameters.items() if k != "limit"}, role="ui")[0]["n"])
    return VerdictList(
        [
            WindowVerdict(row["Service"], str(int(row["since"])), str(int(row["until"])), row["State"],
                          float(row["Relative"]), orjson.loads(row["Body"])["verdict"])
            for row in rows
        ],
        total,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """`state`: slower (with a verdict), as_usual, or too_few (requests in the hour before to say what is usual).

    `usual_ns` is a usual request's whole time, or that to its first token where the verdict is about that; `excess_ns`
    what the stages that grew took more, with nothing taken off for those that took less.
    """

    state: str
    usual_ns: int | None
    excess_ns: int
    verdict: Verdict | None


def request_verdict(store: Store, row: RequestRow) -> RequestVerdict:
    """Why this request took longer than its service's requests in the hour before it usually do."""
    return verdict_of_one(store, row.service, int(row.start_unix_ns), row.duration_ns)


def verdict_of_one(store: Store, service: str, start: int, duration_ns: int) -> RequestVerdict:
    """The same, of the request of a service that started then and took so long."""
    end = start + duration_ns
    before, around = together([
        partial(observe, store, service, start - REFERENCE_NS, start, role="ui"),
        partial(observe, store, service, start - _MARGIN_NS, end + _MARGIN_NS, role="ui"),
    ])  # fmt: skip
    own = around.requests.where((around.requests.start_ns == start) & (around.requests.duration_ns == duration_ns))
    one = Observed(start, end, own, around.steps, around.counters, around.startups, around.gpus, around.hosts)
    found = judge_request(before, one, around)
    chosen = found.whole if found.view == "whole" else found.first
    if chosen is None:
        return RequestVerdict("too_few", None, 0, None)
    return RequestVerdict(
        "slower" if found.verdict else "as_usual", round(chosen.before), round(chosen.total), found.verdict
    )

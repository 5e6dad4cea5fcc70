"""Is the first token slow, or are the later ones: the two halves of a streamed answer, each with its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tailtrace.analytics.queries.attribution import Attribution, attribution
from tailtrace.analytics.queries.request_sample import RequestSample, request_sample
from tailtrace.analytics.queries.selection import Metric, Selection, select
from tailtrace.analytics.queries.window import Window
from tailtrace.analytics.statistics.percentiles import Percentile, percentile_of_buckets
from tailtrace.analytics.statistics.sample import Sample
from tailtrace.ingest.store import Store

QUANTILES: Final = (0.5, 0.95, 0.99)
STALL_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Tokens:
    """`first_share` is the part of P95 of the duration that lies before the first token, among requests with one;
    `slower_half` is first, later, or null where nothing is known.

    `ttft` and `tpot` are P50 and P95 by stage; `gaps` are the times between chunks, `stalled` the share of requests
    with a gap of a second or more.
    """

    service: str
    since_unix_ns: str
    until_unix_ns: str
    filters: dict[str, str]
    n: int
    with_first_token: int
    first_share: float | None
    slower_half: Literal["first", "later"] | None
    ttft: list[Attribution]
    tpot: list[Attribution]
    gaps: list[Percentile]
    stalled: float | None
    longest_gap_ns: int | None


_TIME: Final = """
FROM requests WHERE Kind = 'request' AND TtftNs IS NOT NULL AND {where}
  AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
"""
# What is not `number:number` came from outside as something else, and counts as nothing.
_GAPS: Final = (
    "SELECT toInt32OrZero(extract(pair, '^([0-9]{1,6}):')) AS k, sum(Sign * toInt64OrZero(extract(pair, ':([0-9]+)$')))"
    " AS n FROM (SELECT Sign, arrayJoin(splitByChar(',', Gaps)) AS pair"
    + _TIME
    + ") WHERE pair != '' GROUP BY k HAVING n > 0 ORDER BY k"
)
_STALLS: Final = (
    "SELECT sum(Sign) AS n, sumIf(Sign, longest >= {stall:Int64}) AS stalled, max(longest) AS most FROM ("
    "SELECT Sign, arrayMax(arrayMap(x -> toInt64OrZero(extract(x, ':([0-9]+)$')), splitByChar(',', Stalls))) AS longest"
    + _TIME
    + ")"
)


def tokens(store: Store, window: Window, service: str, *, filters: Mapping[str, str] | None = None) -> Tokens:
    """First token against later tokens of the requests of a service that streamed or told their first token."""
    selection = select(window, service, filters)
    sample = request_sample(store, selection)
    known = sample.has("ttft") if sample.rows else np.zeros(0, np.bool_)
    share = None
    if known.any():
        duration, first = sample.number("duration")[known], sample.number("ttft")[known]
        halves = np.stack((first, duration - first), axis=1)
        split = Sample(duration, halves).split(0.95, sample.weights[known])
        share = float(split.parts[0] / split.value) if split and split.value else None
    parameters = {**selection.parameters(), "stall": STALL_NS}
    gaps = [
        (int(row["k"]), int(row["n"]))
        for row in store.query(_GAPS.replace("{where}", selection.where()), parameters, role="ui")
    ]
    stalls = store.query(_STALLS.replace("{where}", selection.where()), parameters, role="ui")[0]
    return Tokens(
        service=service,
        since_unix_ns=str(window.since_ns),
        until_unix_ns=str(window.until_ns),
        filters=dict(selection.filters),
        n=sample.n,
        with_first_token=int(known.sum()),
        first_share=share,
        slower_half=None if share is None else "first" if share > 0.5 else "later",
        ttft=_split(store, window, selection, "ttft", sample),
        tpot=_split(store, window, selection, "tpot", sample),
        gaps=[percentile_of_buckets(q, gaps) for q in QUANTILES] if gaps else [],
        stalled=int(stalls["stalled"]) / int(stalls["n"]) if stalls["n"] else None,
        longest_gap_ns=int(stalls["most"]) or None,
    )


def _split(
    store: Store, window: Window, selection: Selection, metric: Metric, sample: RequestSample
) -> list[Attribution]:
    return [
        attribution(store, window, selection.service, metric=metric, q=q, filters=selection.filters, sample=sample)
        for q in QUANTILES[:2]
    ]

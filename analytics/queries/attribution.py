"""Which stage makes a percentile of a service: from the rollups where they can tell, with an interval from rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailtrace.analytics.queries.request_sample import STAGE_NAMES, RequestSample, request_sample
from tailtrace.analytics.queries.selection import Metric, Selection, select
from tailtrace.analytics.queries.stage_shares import ROLLUP_COLUMNS
from tailtrace.analytics.queries.window import Window
from tailtrace.analytics.statistics.euler import (
    Allocation,
    Bucket,
    allocate,
    rank_window,
    scaled,
)
from tailtrace.analytics.statistics.percentiles import (
    Percentile,
    interval_ranks,
    needed,
    percentile_of_buckets,
    rank,
)
from tailtrace.analytics.statistics.sample import Sample, bootstrap
from tailtrace.errors import Rejected
from tailtrace.ingest.store import Store
from tailtrace.stages import UNEXPLAINED

__all__ = ["Allocation", "Attribution", "Bucket", "StagePart", "allocate", "attribution", "rank_window"]

_FEWEST_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class StagePart:
    """A stage's part of the percentile; the bounds are of a 95 % interval, null where there is `no_interval`."""

    stage: str
    duration_ns: int
    share: float
    low_ns: int | None
    high_ns: int | None
    low_share: float | None
    high_share: float | None


@dataclass(frozen=True, slots=True)
class Attribution:
    """The percentile divided among stages (`unexplained` included): `duration_ns` of the parts sum to `value_ns`.

    Averaged are the requests of ranks `rank_low` to `rank_high` of `n`; `widened` says that ±0.5(1-q) held fewer than
    100. `hollow`: fewer than 10/(1-q) requests, so only the interval of the percentile counts. `source` is rollups or
    rows; `sampled` rows stand behind the intervals of the parts, else `no_interval` says why there is none.
    """

    service: str
    metric: str
    q: float
    since_unix_ns: str
    until_unix_ns: str
    filters: dict[str, str]
    outcomes: list[str]
    n: int
    value_ns: int | None
    low_ns: int | None
    high_ns: int | None
    hollow: bool
    rank_low: int | None
    rank_high: int | None
    widened: bool
    stages: list[StagePart]
    source: str
    tier: str | None
    sampled: int
    no_interval: str | None


# {table} is one of three constants, chosen by the window's tier; {where} is made of constants.
_BUCKETS: Final = (
    "SELECT K, sum(N) AS n, "
    + ", ".join(f"sum({column}) AS {column}" for column in ROLLUP_COLUMNS)
    + " FROM {table} WHERE Metric = {metric:String} AND Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')"
    " AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC') AND {where} GROUP BY K HAVING n > 0 ORDER BY K"
)


def attribution(
    store: Store,
    window: Window,
    service: str,
    *,
    metric: Metric = "duration",
    q: float = 0.95,
    filters: Mapping[str, str] | None = None,
    intervals: bool = True,
    sample: RequestSample | None = None,
) -> Attribution:
    """Attribution of the q-percentile of a service. `intervals=False` leaves the rows unread; a `sample` of the same
    selection that was already read is used for them.

    Raises Rejected for a q outside (0, 1) or a filter that is none.
    """
    if not 0 < q < 1:
        raise Rejected(f"q lies between 0 and 1, like 0.95; got {q}")
    selection = select(window, service, filters)
    if selection.in_rollups:
        rows = store.query(
            _BUCKETS.replace("{table}", window.table).replace("{where}", selection.rollup_where()),
            {**selection.parameters(), "metric": metric},
            role="ui",
        )
        found = of_rollup(q, rows)
        if sample is None and intervals and found[0].n:
            sample = request_sample(store, selection)
    else:
        sample = sample or request_sample(store, selection)
        found = of_rows(q, metric, sample)
    return _answer(selection, window, metric, found, sample, intervals)


Found = tuple[Percentile, Allocation | None]


def of_rollup(q: float, rows: list[dict[str, Any]]) -> Found:
    """Percentile and allocation from rollup rows in ascending K."""
    histogram = [(int(row["K"]), int(row["n"])) for row in rows]
    buckets = [Bucket(int(row["K"]), int(row["n"]), [int(row[c]) for c in ROLLUP_COLUMNS]) for row in rows]
    return percentile_of_buckets(q, histogram), allocate(q, buckets)


def of_rows(q: float, metric: Metric, sample: RequestSample) -> Found:
    """The same from rows, to the nanosecond where no row was left out."""
    known = sample.has(metric)
    n = int(known.sum())
    if n == 0:
        return Percentile(q, None, None, None, 0, True), None
    ordered = Sample(sample.number(metric)[known], sample.parts(metric)[known])
    split = ordered.split(q, sample.weights[known])
    assert split is not None
    value = int(split.value)
    low, high = interval_ranks(q, n)
    spread = dict(zip(sample.stages, scaled(split.parts.tolist(), value), strict=True))
    return (
        Percentile(
            q,
            value,
            int(ordered.values[low - 1]) if low >= 1 else None,
            int(ordered.values[high - 1]) if high <= n else None,
            n,
            n < needed(q),
        ),
        Allocation(value, [spread.get(name, 0) for name in STAGE_NAMES], split.first + 1, split.last + 1),
    )


def _answer(
    selection: Selection,
    window: Window,
    metric: Metric,
    found: Found,
    sample: RequestSample | None,
    intervals: bool,
) -> Attribution:
    percentile, allocation = found
    bounds, sampled, reason = _intervals(percentile, metric, sample, intervals)
    stages = []
    if allocation is not None:
        value = allocation.value_ns
        for name, part in zip(STAGE_NAMES, allocation.parts_ns, strict=True):
            if part <= 0 and name != UNEXPLAINED:
                continue
            share = part / value if value else 0.0
            low, high = _around(share, bounds.get(name)) if reason is None else (None, None)
            stages.append(
                StagePart(
                    name,
                    part,
                    share,
                    None if low is None else round(low * value),
                    None if high is None else round(high * value),
                    low,
                    high,
                )
            )
    n = percentile.n
    wanted = int(0.5 * (1 - percentile.q) * n)
    return Attribution(
        service=selection.service,
        metric=metric,
        q=percentile.q,
        since_unix_ns=str(selection.since_ns),
        until_unix_ns=str(selection.until_ns),
        filters=dict(selection.filters),
        outcomes=[selection.filters["outcome"]] if "outcome" in selection.filters else list(selection.outcomes),
        n=n,
        value_ns=percentile.value_ns,
        low_ns=percentile.low_ns,
        high_ns=percentile.high_ns,
        hollow=percentile.hollow,
        rank_low=allocation.rank_low if allocation else None,
        rank_high=allocation.rank_high if allocation else None,
        widened=allocation is not None and allocation.rank_high - rank(percentile.q, n) > wanted,
        stages=stages,
        source="rollups" if selection.in_rollups else "rows",
        tier=window.tier if selection.in_rollups else None,
        sampled=sampled,
        no_interval=reason,
    )


Bounds = dict[str, tuple[float, float, float]]


def _intervals(
    percentile: Percentile, metric: Metric, sample: RequestSample | None, wanted: bool
) -> tuple[Bounds, int, str | None]:
    """Share in the sample with its bootstrap bounds, by stage; how many rows; or why there are none."""
    if percentile.n == 0:
        return {}, 0, "no requests in this range"
    if not wanted or sample is None:
        return {}, 0, "not asked for"
    known = sample.has(metric)
    rows = int(known.sum())
    if rows < min(_FEWEST_ROWS, percentile.n):
        return {}, rows, "the rows of this range are gone; only rollups are left"
    if percentile.n < _FEWEST_ROWS:
        return {}, rows, f"{percentile.n} requests are too few for an interval; {_FEWEST_ROWS} are needed"
    ordered = Sample(sample.number(metric)[known], sample.parts(metric)[known])
    weights = sample.weights[known][ordered.order]

    def shares(counts: Any) -> Any:
        split = ordered.split_at(percentile.q, np.cumsum(counts * weights))
        return split.parts / split.value if split and split.value else np.full(len(sample.stages), np.nan)

    own = shares(np.ones(rows))
    low, high = bootstrap(rows, shares)
    return (
        dict(zip(sample.stages, zip(own.tolist(), low.tolist(), high.tolist(), strict=True), strict=True)),
        rows,
        None,
    )


def _around(share: float, bounds: tuple[float, float, float] | None) -> tuple[float, float]:
    """The interval of the sample's share, moved to the share of all requests."""
    if bounds is None:
        return share, share
    own, low, high = bounds
    return max(0.0, share - max(0.0, own - low)), min(1.0, share + max(0.0, high - own))

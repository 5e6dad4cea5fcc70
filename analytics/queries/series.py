"""How one service's rate, percentiles and stage shares move over time, from the rollups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from tailtrace.analytics.queries.overview import OUTCOMES, QUANTILES
from tailtrace.analytics.queries.percentiles import Percentile, percentile_of_buckets
from tailtrace.analytics.queries.selection import STREAMED
from tailtrace.analytics.queries.stage_shares import ROLLUP_COLUMNS
from tailtrace.analytics.queries.together import together
from tailtrace.analytics.queries.window import SECOND_NS, Window, newest_ns
from tailtrace.ingest.store import Store
from tailtrace.stages import REQUEST_STAGES, UNEXPLAINED

Metric = Literal["duration", "ttft", "tpot"]


@dataclass(frozen=True, slots=True)
class StageSeries:
    """Share of one stage at each time, 0 to 1; null where nothing was served. `unexplained` is the last of them."""

    stage: str
    share: list[float | None]


@dataclass(frozen=True, slots=True)
class Series:
    """All lists are as long as `times_unix_ns` (the start of each step of `step_ns`)."""

    service: str
    metric: str
    step_ns: int
    times_unix_ns: list[str]
    per_second: list[float]
    failed_per_second: list[float]
    percentiles: list[list[Percentile]]
    ttft_percentiles: list[list[Percentile]]
    tpot_percentiles: list[list[Percentile]]
    stages: list[StageSeries]


_WHERE: Final = (
    """
WHERE Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND ({root:Int8} < 0 OR IsRoot = ({root:Int8} = 1)) AND Service = {service:String} AND """
    + STREAMED
)
_STEP: Final = "intDiv(toUnixTimestamp(Time) - intDiv({since:Int64}, 1000000000), intDiv({step:Int64}, 1000000000))"
_COUNTS: Final = (
    f"SELECT {_STEP} AS i, sum(N) AS n, sumIf(N, Outcome NOT IN ('ok', 'cancelled')) AS failed FROM {{table}} {_WHERE}"
    " AND Metric = 'duration' GROUP BY i"
)
_BUCKETS: Final = (
    f"SELECT {_STEP} AS i, Metric, K, sum(N) AS n FROM {{table}} {_WHERE}"
    " AND Metric IN ({metric:String}, 'ttft', 'tpot') AND has({outcomes:Array(String)}, Outcome)"
    " GROUP BY i, Metric, K HAVING n > 0 ORDER BY i, Metric, K"
)
_STAGES: Final = (
    f"SELECT {_STEP} AS i, "
    + ", ".join(f"sum({column}) AS {column}" for column in ROLLUP_COLUMNS)
    + f" FROM {{table}} {_WHERE} AND Metric = {{metric:String}} AND has({{outcomes:Array(String)}}, Outcome) GROUP BY i"
)


def series(
    store: Store,
    window: Window,
    service: str,
    *,
    metric: Metric = "duration",
    is_root: bool | None = True,
    outcomes: Sequence[str] = OUTCOMES,
) -> Series:
    """Time series of one service; steps without data hold null percentiles and shares, and a rate of zero. The rate of
    the newest step is of the part of it that there is data for.
    """
    parameters = {
        "since": window.since_ns,
        "until": window.until_ns,
        "step": window.step_ns,
        "root": -1 if is_root is None else int(is_root),
        "service": service,
        "metric": metric,
        "outcomes": list(outcomes),
    }

    calls: list[Callable[[], Any]] = [
        partial(store.query, sql.replace("{table}", window.table), parameters, role="ui")
        for sql in (_COUNTS, _BUCKETS, _STAGES)
    ]
    calls.append(partial(newest_ns, store))
    counts, buckets, stages, newest = together(calls)

    count = -(-(window.until_ns - window.since_ns) // window.step_ns)
    rate, failed = [0.0] * count, [0.0] * count
    for row in counts:
        seconds = _covered_ns(window, int(row["i"]), newest) / SECOND_NS
        rate[row["i"]] = row["n"] / seconds
        failed[row["i"]] = row["failed"] / seconds
    histograms: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for row in buckets:
        histograms[row["Metric"], row["i"]].append((int(row["K"]), int(row["n"])))

    def percentiles(wanted: str) -> list[list[Percentile]]:
        return [[percentile_of_buckets(q, histograms.get((wanted, i), [])) for i in range(count)] for q in QUANTILES]

    return Series(
        service=service,
        metric=metric,
        step_ns=window.step_ns,
        times_unix_ns=[str(window.since_ns + i * window.step_ns) for i in range(count)],
        per_second=rate,
        failed_per_second=failed,
        percentiles=percentiles(metric),
        ttft_percentiles=percentiles("ttft"),
        tpot_percentiles=percentiles("tpot"),
        stages=_stage_series(stages, count),
    )


def _covered_ns(window: Window, step: int, newest: int | None) -> int:
    """How much of a step there is data for: the last one has begun and is not over. At least a twentieth of it, so
    that one request in its first moment is no rush.
    """
    begin = window.since_ns + step * window.step_ns
    covered = window.step_ns if newest is None else min(window.step_ns, newest + 1 - begin)
    return max(covered, window.step_ns // 20)


def _stage_series(rows: Sequence[dict[str, Any]], count: int) -> list[StageSeries]:
    """Shares per step of every stage that took any time in the window, vocabulary order, unexplained last."""
    names = (*(stage.name for stage in REQUEST_STAGES), UNEXPLAINED)
    wholes = {row["i"]: sum(int(row[column]) for column in ROLLUP_COLUMNS) for row in rows}
    by_step = {row["i"]: row for row in rows}
    result = []
    for name, column in zip(names, ROLLUP_COLUMNS, strict=True):
        if any(int(row[column]) > 0 for row in rows):
            shares = [int(by_step[i][column]) / wholes[i] if wholes.get(i) else None for i in range(count)]
            result.append(StageSeries(name, shares))
    return result

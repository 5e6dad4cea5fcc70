"""The first page's figures, per service: rate, outcomes, percentiles, and which stages make the median and the tail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tailtrace.analytics.queries.attribution import Bucket, allocate
from tailtrace.analytics.queries.percentiles import Percentile, percentile_of_buckets
from tailtrace.analytics.queries.selection import STREAMED
from tailtrace.analytics.queries.stage_shares import ROLLUP_COLUMNS, StageShare, largest, stage_shares
from tailtrace.analytics.queries.together import together
from tailtrace.analytics.queries.window import SECOND_NS, Window
from tailtrace.ingest.store import Store

QUANTILES: Final = (0.5, 0.95, 0.99)
OUTCOMES: Final = ("ok",)  # what the percentiles include; the other outcomes are shares beside them


@dataclass(frozen=True, slots=True)
class StageSplit:
    """A percentile divided among stages: `stages` and `unexplained_ns` sum to `value_ns`, averaged over ranks low
    to high.
    """

    q: float
    value_ns: int
    stages: list[StageShare]
    unexplained_ns: int
    rank_low: int
    rank_high: int


@dataclass(frozen=True, slots=True)
class ServiceOverview:
    """One service in the window. Percentiles are of requests whose outcome is in `Overview.outcomes`."""

    service: str
    requests: int
    per_second: float
    outcomes: dict[str, int]
    error_share: float | None
    cancelled_share: float | None
    duration: list[Percentile]
    ttft: list[Percentile]
    tpot: list[Percentile]
    duration_split: list[StageSplit]
    ttft_split: list[StageSplit]
    top_stage: StageShare | None
    staged: bool
    simulated: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """All services in [since, until)."""

    since_unix_ns: str | None
    until_unix_ns: str | None
    tier: str | None
    is_root: bool | None
    outcomes: list[str]
    services: list[ServiceOverview]


_WHERE: Final = (
    """
WHERE Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
  AND ({root:Int8} < 0 OR IsRoot = ({root:Int8} = 1)) AND ({service:String} = '' OR Service = {service:String})
  AND """
    + STREAMED
)
# {table} is one of three constants, chosen by the window's tier.
_COUNTS: Final = (
    "SELECT Service, Outcome, sum(N) AS n FROM {table} " + _WHERE + " AND Metric = 'duration' GROUP BY Service, Outcome"
)
_BUCKETS: Final = (
    "SELECT Service, Metric, K, sum(N) AS n, "
    + ", ".join(f"sum({column}) AS {column}" for column in ROLLUP_COLUMNS)
    + " FROM {table} "
    + _WHERE
    + " AND has({outcomes:Array(String)}, Outcome) GROUP BY Service, Metric, K HAVING n > 0 ORDER BY Service, Metric, K"
)
_SIMULATED: Final = """
SELECT Service, max(Simulated) AS simulated FROM requests
WHERE End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')
  AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC') GROUP BY Service
"""


def overview(
    store: Store,
    window: Window | None,
    *,
    is_root: bool | None = True,
    service: str = "",
    outcomes: Sequence[str] = OUTCOMES,
) -> Overview:
    """Per-service figures of a window from the rollups, busiest first. `is_root=None` takes every entry span."""
    if window is None:
        return Overview(None, None, None, is_root, list(outcomes), [])
    parameters = {
        "since": window.since_ns,
        "until": window.until_ns,
        "root": -1 if is_root is None else int(is_root),
        "service": service,
        "outcomes": list(outcomes),
    }
    statements = [_COUNTS.replace("{table}", window.table), _BUCKETS.replace("{table}", window.table), _SIMULATED]
    counted, histograms, marks = together([partial(store.query, sql, parameters, role="ui") for sql in statements])
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for row in counted:
        if row["n"] > 0:
            counts[row["Service"]][row["Outcome"]] = int(row["n"])
    buckets: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in histograms:
        buckets[row["Service"], row["Metric"]].append(row)
    simulated = {row["Service"] for row in marks if row["simulated"]}
    seconds = (window.until_ns - window.since_ns) / SECOND_NS
    entries = [
        _service(
            name,
            by_outcome,
            {metric: buckets[name, metric] for metric in ("duration", "ttft", "tpot")},
            seconds,
            name in simulated,
        )
        for name, by_outcome in counts.items()
    ]
    entries.sort(key=lambda entry: (-entry.requests, entry.service))
    return Overview(str(window.since_ns), str(window.until_ns), window.tier, is_root, list(outcomes), entries)


def _service(
    name: str, outcomes: dict[str, int], buckets: dict[str, list[dict[str, Any]]], seconds: float, simulated: bool
) -> ServiceOverview:
    requests = sum(outcomes.values())
    failed = requests - outcomes.get("ok", 0) - outcomes.get("cancelled", 0)
    splits = [split for q in (0.5, 0.99) if (split := split_percentile(q, buckets["duration"])) is not None]
    return ServiceOverview(
        service=name,
        requests=requests,
        per_second=requests / seconds,
        outcomes=dict(sorted(outcomes.items())),
        error_share=failed / requests if requests else None,
        cancelled_share=outcomes.get("cancelled", 0) / requests if requests else None,
        duration=percentiles(buckets["duration"]),
        ttft=percentiles(buckets["ttft"]),
        tpot=percentiles(buckets["tpot"]),
        duration_split=splits,
        ttft_split=[split for q in (0.5, 0.99) if (split := split_percentile(q, buckets["ttft"])) is not None],
        top_stage=largest(splits[-1].stages) if splits else None,
        staged=any(_has_stage(split) for split in splits),
        simulated=simulated,
    )


def _has_stage(split: StageSplit) -> bool:
    """Whether anything but service-level time was seen: app, network and external need no stage marks."""
    return any(share.stage not in ("app", "network", "external") for share in split.stages)


def percentiles(rows: Sequence[dict[str, Any]]) -> list[Percentile]:
    """P50, P95 and P99 of histogram rows (K, n)."""
    histogram = [(int(row["K"]), int(row["n"])) for row in rows]
    return [percentile_of_buckets(q, histogram) for q in QUANTILES] if histogram else []


def split_percentile(q: float, rows: Sequence[dict[str, Any]]) -> StageSplit | None:
    """Attribution of a percentile from histogram rows that carry their stage sums; None without rows."""
    parts = allocate(
        q, [Bucket(int(row["K"]), int(row["n"]), [int(row[column]) for column in ROLLUP_COLUMNS]) for row in rows]
    )
    if parts is None:
        return None
    row = dict(zip(ROLLUP_COLUMNS, parts.parts_ns, strict=True))
    return StageSplit(
        q, parts.value_ns, stage_shares(row, parts.value_ns), parts.parts_ns[-1], parts.rank_low, parts.rank_high
    )

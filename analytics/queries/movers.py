"""What moved: services and models whose percentile is not what it was in the same hours a day or a week before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from tailtrace.analytics.queries.overview import OUTCOMES, StageSplit, split_percentile
from tailtrace.analytics.queries.percentiles import Percentile, percentile_of_buckets
from tailtrace.analytics.queries.selection import STREAMED
from tailtrace.analytics.queries.stage_shares import ROLLUP_COLUMNS
from tailtrace.analytics.queries.window import DAY_NS, Window
from tailtrace.ingest.store import Store
from tailtrace.stages import UNEXPLAINED

Q: Final = 0.95
MOST: Final = 8


@dataclass(frozen=True, slots=True)
class Mover:
    """One service and model, now against then. `stage` moved most, by `stage_change_ns` of `change_ns`; empty where no
    stage moved the same way.
    """

    service: str
    model: str
    requests: int
    requests_before: int
    value_ns: int
    before_ns: int
    change_ns: int
    ratio: float
    stage: str
    stage_change_ns: int


@dataclass(frozen=True, slots=True)
class Movers:
    """Of `judged` pairs of service and model with enough requests in both windows, `total` have 95 % intervals that do
    not overlap; `movers` holds the largest of them. `compared` is False where nothing is stored from then.
    """

    q: float
    since_unix_ns: str
    until_unix_ns: str
    back_ns: int
    compared: bool
    judged: int
    total: int
    movers: list[Mover]


# {table} is one of three constants, chosen by the window's tier.
_SQL: Final = (
    """
SELECT Service, Model, Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AS recent, K, sum(N) AS n, """
    + ", ".join(f"sum({column}) AS {column}" for column in ROLLUP_COLUMNS)
    + """
FROM {table}
WHERE ((Time >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND Time < fromUnixTimestamp64Nano({until:Int64}, 'UTC'))
    OR (Time >= fromUnixTimestamp64Nano({since_then:Int64}, 'UTC')
      AND Time < fromUnixTimestamp64Nano({until_then:Int64}, 'UTC')))
  AND ({root:Int8} < 0 OR IsRoot = ({root:Int8} = 1)) AND Metric = 'duration' AND has({outcomes:Array(String)}, Outcome)
  AND """
    + STREAMED
    + " GROUP BY Service, Model, recent, K HAVING n > 0 ORDER BY Service, Model, recent, K"
)


def movers(
    store: Store, window: Window, *, back_ns: int = DAY_NS, is_root: bool | None = True, q: float = Q, limit: int = MOST
) -> Movers:
    """The window against the one `back_ns` before it. A pair counts where the percentile is no hollow one in either,
    and has moved where their 95 % order-statistic intervals lie apart.
    """
    values = {
        "since": window.since_ns, "until": window.until_ns, "since_then": window.since_ns - back_ns,
        "until_then": window.until_ns - back_ns, "root": -1 if is_root is None else int(is_root),
        "outcomes": list(OUTCOMES),
    }  # fmt: skip
    rows: dict[tuple[str, str], dict[bool, list[dict[str, Any]]]] = defaultdict(lambda: {True: [], False: []})
    for row in store.query(_SQL.replace("{table}", window.table), values, role="ui"):
        rows[row["Service"], row["Model"]][bool(row["recent"])].append(row)
    judged, moved = 0, []
    for (service, model), sides in rows.items():
        now, then = _percentile(q, sides[True]), _percentile(q, sides[False])
        if now.hollow or then.hollow:
            continue
        judged += 1
        if _apart(now, then):
            moved.append(_mover(service, model, now, then, split_percentile(q, sides[True]),
                                split_percentile(q, sides[False])))  # fmt: skip
    moved.sort(key=lambda one: (-abs(one.change_ns) * one.requests, one.service, one.model))
    return Movers(
        q, str(window.since_ns), str(window.until_ns), back_ns, any(sides[False] for sides in rows.values()), judged,
        len(moved), moved[:limit],
    )  # fmt: skip


def _percentile(q: float, rows: list[dict[str, Any]]) -> Percentile:
    return percentile_of_buckets(q, [(int(row["K"]), int(row["n"])) for row in rows])


def _apart(now: Percentile, then: Percentile) -> bool:
    bounds = (now.low_ns, now.high_ns, then.low_ns, then.high_ns)
    if any(bound is None for bound in bounds):
        return False
    low, high, low_then, high_then = (int(bound or 0) for bound in bounds)
    return low > high_then or low_then > high


def _mover(
    service: str, model: str, now: Percentile, then: Percentile, after: StageSplit | None, before: StageSplit | None
) -> Mover:
    value, was = now.value_ns or 0, then.value_ns or 0
    change = value - was
    parts = _parts(after)
    for stage, ns in _parts(before).items():
        parts[stage] = parts.get(stage, 0) - ns
    stage, most = max(parts.items(), key=lambda part: part[1] * (1 if change > 0 else -1), default=("", 0))
    if most * change <= 0:
        stage, most = "", 0
    return Mover(service, model, now.n, then.n, value, was, change, value / was if was else 0.0, stage, most)


def _parts(split: StageSplit | None) -> dict[str, int]:
    if split is None:
        return {}
    return {part.stage: part.duration_ns for part in split.stages} | {UNEXPLAINED: split.unexplained_ns}

"""A box on the heatmap against everything else that is shown: which values and stages set it apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tailtrace.analytics.queries.request_filter import RequestFilter, parameters, where
from tailtrace.analytics.queries.stage_shares import ROLLUP_COLUMNS
from tailtrace.ingest.store import Store
from tailtrace.stages import REQUEST_STAGES, UNEXPLAINED

SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class BoxValue:
    """Share of the requests with this value of a column, inside the box and in the rest."""

    name: str
    value: str
    inside_share: float
    rest_share: float


@dataclass(frozen=True, slots=True)
class BoxStage:
    """Mean time in a stage, inside the box and in the rest."""

    stage: str
    inside_ns: int
    rest_ns: int


@dataclass(frozen=True, slots=True)
class Box:
    """`values` by the size of the difference in share, `stages` by the difference in time; the largest of each."""

    since_unix_ns: str
    until_unix_ns: str
    low_ns: int
    high_ns: int
    inside: int
    rest: int
    values: list[BoxValue]
    stages: list[BoxStage]


_POWER: Final = "concat('≥ ', toString(exp2(floor(log2(greatest({}, 1))))))"
_COLUMNS: Final = {
    "service": "Service", "model": "Model", "route": "Route", "outcome": "Outcome", "version": "Version",
    "replica": "Replica", "tenant": "Tenant", "streaming": "Streaming", "engine_version": "EngineVersion",
    "client_region": "ClientRegion", "gpu_model": "GpuModel",
    "input_tokens": f"if(InputTokens IS NULL, '', {_POWER.format('InputTokens')})",
    "output_tokens": f"if(OutputTokens IS NULL, '', {_POWER.format('OutputTokens')})",
    "cached": "if(CachedTokens IS NULL, '', if(CachedTokens > 0, 'yes', 'no'))",
}  # fmt: skip
_PAIRS: Final = ", ".join(f"('{name}', toString({column}))" for name, column in _COLUMNS.items())
_INSIDE: Final = (
    "(End >= fromUnixTimestamp64Nano({box_since:Int64}, 'UTC')"
    " AND End < fromUnixTimestamp64Nano({box_until:Int64}, 'UTC')"
    " AND DurationNs >= {box_low:UInt64} AND DurationNs < {box_high:UInt64})"
)
_VALUES: Final = (
    "SELECT pair.1 AS name, pair.2 AS value, sum(Sign * inside) AS a, sum(Sign * (1 - inside)) AS b"
    f" FROM (SELECT Sign, toInt8({_INSIDE}) AS inside, arrayJoin([{_PAIRS}]) AS pair FROM requests {{where}})"
    " GROUP BY name, value HAVING a > 0 OR b > 0"
)
_STAGES: Final = (
    f"SELECT toInt8({_INSIDE}) AS inside, sum(Sign) AS n, "
    + ", ".join(f"sum(Sign * toInt64({column})) AS {column}" for column in ROLLUP_COLUMNS)
    + " FROM requests {where} GROUP BY inside"
)


def box_versus_rest(
    store: Store, wanted: RequestFilter, *, since_ns: int, until_ns: int, low_ns: int, high_ns: int
) -> Box:
    """What sets the box apart among the requests of `wanted`."""
    wanted = replace(wanted, cursor=None)
    values = {
        **parameters(wanted),
        "box_since": since_ns,
        "box_until": until_ns,
        "box_low": low_ns,
        "box_high": high_ns,
    }
    sides = {
        int(row["inside"]): row for row in store.query(_STAGES.replace("{where}", where(wanted)), values, role="ui")
    }
    counts = {side: int(sides[side]["n"]) if side in sides else 0 for side in (1, 0)}
    found = []
    for row in store.query(_VALUES.replace("{where}", where(wanted)), values, role="ui"):
        a, b = int(row["a"]), int(row["b"])
        if row["value"]:
            found.append(BoxValue(row["name"], row["value"], a / max(1, counts[1]), b / max(1, counts[0])))
    found.sort(key=lambda one: -abs(one.inside_share - one.rest_share))
    means = []
    for stage, column in zip((*(one.name for one in REQUEST_STAGES), UNEXPLAINED), ROLLUP_COLUMNS, strict=True):
        a, b = (int(sides[side][column]) // max(1, counts[side]) if side in sides else 0 for side in (1, 0))
        if a or b:
            means.append(BoxStage(stage, a, b))
    means.sort(key=lambda one: -abs(one.inside_ns - one.rest_ns))
    return Box(
        str(since_ns), str(until_ns), low_ns, high_ns, counts[1], counts[0],
        [one for one in found if abs(one.inside_share - one.rest_share) >= 0.01][:SHOWN], means[:SHOWN],
    )  # fmt: skip

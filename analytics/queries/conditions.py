"""The conditions that all requests of a chart share, or how many kinds there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailtrace.analytics.queries.window import Window
from tailtrace.ingest.store import Store

_COLUMNS: Final = {
    "model": "Model",
    "precision": "Precision",
    "gpu_model": "GpuModel",
    "engine": "Engine",
    "engine_version": "EngineVersion",
    "tp": "Tp",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """`common` holds what is the same in all requests that say it; `mixed` how many values the others have; `kinds`
    counts the combinations.
    """

    common: dict[str, str]
    mixed: dict[str, int]
    kinds: int


_VALUES: Final = "groupUniqArrayIf(50)(toString({0}), toString({0}) NOT IN ('', '0'))"
# Kinds first: there are few, and each is looked at once.
_SQL: Final = (
    "SELECT "
    + ", ".join(f"arraySort({_VALUES.format(c)}) AS {c}s" for c in _COLUMNS.values())
    + f", uniqExactIf(({', '.join(_COLUMNS.values())}), Model != '' OR Engine != '') AS kinds FROM"
    f" (SELECT {', '.join(_COLUMNS.values())} FROM requests"
    " WHERE ({service:String} = '' OR Service = {service:String}) AND Kind = 'request'"
    " AND End >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AND End < fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
    " GROUP BY ALL)"
)  # fmt: skip


def conditions(store: Store, window: Window, service: str) -> Conditions:
    """Of the requests of a service (all of them where it is empty) in a window."""
    values = {"service": service, "since": window.since_ns, "until": window.until_ns}
    row = store.query(_SQL, values, role="ui")[0]
    said = {name: list(row[f"{column}s"]) for name, column in _COLUMNS.items()}
    return Conditions(
        {name: found[0] for name, found in said.items() if len(found) == 1},
        {name: len(found) for name, found in said.items() if len(found) > 1},
        int(row["kinds"]),
    )

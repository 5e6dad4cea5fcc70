"""Which requests a question is about: service, time, and any column of a request, as SQL with parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tailtrace.analytics.queries.window import Window
from tailtrace.errors import Rejected

Metric = Literal["duration", "ttft", "tpot"]
METRICS: Final[tuple[Metric, ...]] = ("duration", "ttft", "tpot")

# A buffered answer has an engine's first-token stamp that its client never saw: unless a question names them,
# requests known not to stream are in no percentile of the time to first token.
STREAMED: Final = "(Metric != 'ttft' OR Streaming != 'false')"

# What requests can be filtered and compared by: the name users write, and the column.
ATTRIBUTES: Final[Mapping[str, str]] = {
    "name": "Name",
    "route": "Route",
    "model": "Model",
    "version": "Version",
    "outcome": "Outcome",
    "streaming": "Streaming",
    "tenant": "Tenant",
    "client_region": "ClientRegion",
    "replica": "Replica",
    "host_id": "HostId",
    "engine": "Engine",
    "engine_version": "EngineVersion",
    "engine_id": "EngineId",
    "precision": "Precision",
    "quantization": "Quantization",
    "tp": "Tp",
    "pp": "Pp",
    "max_batch": "MaxBatch",
    "gpu_model": "GpuModel",
    "error_type": "ErrorType",
}
# The filters that the rollups can answer too.
ROLLUP_ATTRIBUTES: Final = frozenset({"route", "model", "version", "outcome", "streaming"})


@dataclass(frozen=True, slots=True)
class Selection:
    """Requests of a service that ended in [since_ns, until_ns) and match all `filters`.

    `outcomes` are counted unless a filter names one. `is_root=None` takes every entry span of the service.
    """

    service: str
    since_ns: int
    until_ns: int
    filters: Mapping[str, str] = field(default_factory=dict)
    outcomes: Sequence[str] = ("ok",)
    is_root: bool | None = None

    def where(self) -> str:
        """Conditions on `requests` or a rollup, but time; raises Rejected for a filter that there is no column for."""
        checked(self.filters)
        parts = ["Service = {service:String}", "({root:Int8} < 0 OR IsRoot = ({root:Int8} = 1))"]
        if "outcome" not in self.filters:
            parts.append("has({outcomes:Array(String)}, Outcome)")
        # Names are constants of ATTRIBUTES, values travel as parameters.
        parts += [f"toString({ATTRIBUTES[name]}) = {{filter_{name}:String}}" for name in self.filters]
        return " AND ".join(parts)

    def rollup_where(self) -> str:
        """`where` for a rollup, with only streamed requests in the metric ttft unless a filter names `streaming`."""
        return self.where() if "streaming" in self.filters else f"{self.where()} AND {STREAMED}"

    def parameters(self) -> dict[str, Any]:
        return {
            "service": self.service,
            "root": -1 if self.is_root is None else int(self.is_root),
            "outcomes": list(self.outcomes),
            "since": self.since_ns,
            "until": self.until_ns,
            **{f"filter_{name}": value for name, value in self.filters.items()},
        }

    @property
    def in_rollups(self) -> bool:
        return ROLLUP_ATTRIBUTES.issuperset(self.filters)


def checked(filters: Mapping[str, str]) -> Mapping[str, str]:
    """The filters; raises Rejected for a name that is none."""
    for name in filters:
        if name not in ATTRIBUTES:
            raise Rejected(f"there is no attribute {name[:40]!r}; there are {', '.join(ATTRIBUTES)}")
    return filters


def parse_filters(texts: Sequence[str]) -> dict[str, str]:
    """`model=llama` and the like; raises Rejected for anything else."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise Rejected(f"a filter is ATTRIBUTE=VALUE; got {text[:60]!r}")
        found[name.strip()] = value
    checked(found)
    return found


def select(window: Window, service: str, filters: Mapping[str, str] | None = None) -> Selection:
    """Requests of a service in a window."""
    return Selection(service, window.since_ns, window.until_ns, checked(filters or {}))

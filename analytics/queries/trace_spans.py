"""The spans of one trace as a tree in reading order: what the API lists. Attributes are read one span at a time."""

from __future__ import annotations

from dataclasses import dataclass

from tailtrace.analytics.queries.trace_columns import TraceColumns
from tailtrace.analytics.queries.trace_tree import trace_tree


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span. `depth` counts from 0; `size` is how many spans lie below it. Rows follow the tree, parents first."""

    span_id: str
    parent_span_id: str
    service: str
    name: str
    kind: str
    stage: str
    status: str
    start_unix_ns: str
    duration_ns: int
    depth: int
    size: int
    orphan: bool
    simulated: bool


def span_rows(columns: TraceColumns, limit: int) -> list[SpanRow]:
    """The first `limit` rows in tree order, each id once (a resent span is the same span). A span whose parent is
    absent, or that lies on a cycle, stands at the top, marked orphan when it names a parent.
    """
    ids, parents = columns.texts("Id"), columns.texts("Parent")
    tree = trace_tree(ids, parents)
    order = tree.order[:limit]
    services, names, kinds, stages, statuses = (
        _picked(columns.codes(name), order) for name in ("Service", "Shown", "Kind", "Stage", "Status")
    )
    starts, durations = columns.numbers("StartNs")[order].tolist(), columns.numbers("DurationNs")[order].tolist()
    simulated = columns.table["Simulated"].to_pylist()
    return [
        SpanRow(
            ids[at], parents[at], services[row], names[row], kinds[row], stages[row], statuses[row], str(starts[row]),
            durations[row], tree.depths[row], tree.sizes[row], tree.orphans[row], bool(simulated[at]),
        )
        for row, at in enumerate(order)
    ]  # fmt: skip


def _picked(coded: tuple[list[int], list[str]], order: list[int]) -> list[str]:
    codes, texts = coded
    return [texts[codes[at]] or "" for at in order]

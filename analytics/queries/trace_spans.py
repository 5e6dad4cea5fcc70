"""The spans of one trace as a tree in reading order: what the waterfall and the API list. Attributes are read one
span at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailtrace.analytics.queries.trace_tree import trace_tree
from tailtrace.analytics.trace import Span


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span. `depth` counts from 0; `size` is how many spans of the answer lie below it. Rows follow the tree,
    parents first.
    """

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


def span_rows(spans: Sequence[Span]) -> list[SpanRow]:
    """Rows in tree order, each id once (a resent span is the same span). A span whose parent is absent, or that lies on
    a cycle, stands at the top, marked orphan when it names a parent.
    """
    by_id: dict[str, Span] = {}
    for span in spans:
        by_id.setdefault(span.span_id, span)
    ordered = sorted(by_id.values(), key=lambda one: (one.start_unix_ns, one.span_id))
    tree = trace_tree([span.span_id for span in ordered], [span.parent_span_id for span in ordered])
    return [
        _span_row(ordered[at], depth, size, by_id)
        for at, depth, size in zip(tree.order, tree.depths, tree.sizes, strict=True)
    ]


def _span_row(span: Span, depth: int, size: int, by_id: Mapping[str, Span]) -> SpanRow:
    parent = span.parent_span_id
    return SpanRow(
        span_id=span.span_id,
        parent_span_id=parent,
        service=span.service,
        name=span.attributes.get("tailtrace.stage_name") or span.name,
        kind=span.kind,
        stage=span.attributes.get("tailtrace.stage", ""),
        status=span.status,
        start_unix_ns=str(span.start_unix_ns),
        duration_ns=span.duration_ns,
        depth=depth,
        size=size,
        orphan=bool(parent) and parent not in by_id,
        simulated=span.resource.get("tailtrace.simulated") == "true",
    )

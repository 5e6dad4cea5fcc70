"""The spans of one trace as a tree in reading order: what the waterfall and the API list. Attributes are read one
span at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    children: dict[str, list[Span]] = defaultdict(list)
    tops = []
    for span in sorted(by_id.values(), key=lambda one: (one.start_unix_ns, one.span_id)):
        parent = span.parent_span_id
        if parent and parent in by_id and parent != span.span_id:
            children[parent].append(span)
        else:
            tops.append(span)
    order: list[tuple[Span, int]] = []
    seen: set[str] = set()
    _walk(tops, children, order, seen)
    for span in by_id.values():  # what only a cycle reaches
        if span.span_id not in seen:
            _walk([span], children, order, seen)
    sizes = _sizes([depth for _, depth in order])
    return [_span_row(span, depth, size, by_id) for (span, depth), size in zip(order, sizes, strict=True)]


def _walk(
    tops: Sequence[Span],
    children: Mapping[str, Sequence[Span]],
    order: list[tuple[Span, int]],
    seen: set[str],
) -> None:
    """Depth first without recursion: traces can be deeper than Python's stack."""
    stack = [(span, 0) for span in reversed(tops)]
    while stack:
        span, depth = stack.pop()
        if span.span_id in seen:
            continue
        seen.add(span.span_id)
        order.append((span, depth))
        stack.extend((child, depth + 1) for child in reversed(children.get(span.span_id, ())))


def _sizes(depths: Sequence[int]) -> list[int]:
    """Number of following rows that are deeper, for each row of a tree in reading order."""
    sizes = [0] * len(depths)
    open_rows: list[int] = []
    for index, depth in enumerate(depths):
        while open_rows and depths[open_rows[-1]] >= depth:
            top = open_rows.pop()
            sizes[top] = index - top - 1
        open_rows.append(index)
    for top in open_rows:
        sizes[top] = len(depths) - top - 1
    return sizes


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

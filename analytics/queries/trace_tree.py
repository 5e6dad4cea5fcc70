"""Reading order of a trace: parents first, siblings by start; what has no parent here stands at the top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceTree:
    """`order` holds positions of spans in reading order; the others are by position in that order. `sizes` count the
    spans below, `parents` are positions in the order or -1, `orphans` name a parent that is not there.
    """

    order: list[int]
    depths: list[int]
    sizes: list[int]
    parents: list[int]
    orphans: list[bool]


def trace_tree(ids: Sequence[str], parents: Sequence[str]) -> TraceTree:
    """The tree of spans given by start, each id once. A span on a cycle stands at the top, where it is first met."""
    known = {span: at for at, span in enumerate(ids)}
    children: dict[int, list[int]] = defaultdict(list)
    tops = []
    for at, parent in enumerate(parents):
        above = known.get(parent, -1) if parent else -1
        if above >= 0 and above != at:
            children[above].append(at)
        else:
            tops.append(at)
    order: list[int] = []
    depths: list[int] = []
    seen = bytearray(len(ids))
    for top in (*tops, *range(len(ids))):  # the rest is what only a cycle reaches
        stack = [(top, 0)]
        while stack:  # no recursion: traces can be deeper than Python's stack
            at, depth = stack.pop()
            if seen[at]:
                continue
            seen[at] = 1
            order.append(at)
            depths.append(depth)
            stack.extend((child, depth + 1) for child in reversed(children.get(at, ())))
    above_of = parent_positions(depths)
    orphans = [bool(parents[at]) and parents[at] not in known for at in order]
    return TraceTree(order, depths, sizes_below(above_of), above_of, orphans)


def parent_positions(depths: Sequence[int]) -> list[int]:
    """Position of each row's parent in reading order, -1 at the top."""
    found: list[int] = []
    line: list[int] = []
    for at, depth in enumerate(depths):
        del line[depth:]
        found.append(line[-1] if line else -1)
        line.append(at)
    return found


def sizes_below(parents: Sequence[int]) -> list[int]:
    """How many rows lie below each row of a tree in reading order."""
    sizes = [0] * len(parents)
    for at in range(len(parents) - 1, -1, -1):
        if parents[at] >= 0:
            sizes[parents[at]] += sizes[at] + 1
    return sizes


def keep(parents: Sequence[int], durations: Sequence[int], wanted: set[int], limit: int) -> list[int]:
    """At most about `limit` positions, ascending: the wanted ones, then the longest, each with all its parents."""
    if len(parents) <= limit:
        return list(range(len(parents)))
    chosen: set[int] = set()
    for start in sorted(range(len(parents)), key=lambda at: (at not in wanted, -durations[at], at)):
        if len(chosen) >= limit:
            break
        at = start
        while at >= 0 and at not in chosen:
            chosen.add(at)
            at = parents[at]
    return sorted(chosen)

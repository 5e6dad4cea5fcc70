"""The definition of attribution, written down plainly: slow, recursive, one request at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from tailtrace.analytics.trace import Span
from tailtrace.stages import GENERATION_ORDER

Times = dict[str, int]


def stage_of(span: Span) -> str:
    return span.attributes.get("tailtrace.stage", "")


class Tree:
    """Step 1 and 2: duplicates dropped, cycles cut, orphans adopted; who blocks whom."""

    def __init__(self, spans: Sequence[Span]) -> None:
        by_id: dict[str, Span] = {}
        for span in sorted(spans, key=lambda s: (s.span_id, s.start_unix_ns, -s.end_unix_ns, _tie(s))):
            by_id.setdefault(span.span_id, span)
        self.spans = by_id
        self.parent: dict[str, str] = {}
        self.why: dict[str, str] = {}
        for i, span in by_id.items():
            if not span.parent_span_id:
                self.why[i] = "absent"
            elif span.parent_span_id not in by_id:
                self.why[i] = "missing"
            else:
                self.parent[i] = span.parent_span_id
        for i in sorted(by_id):
            self._cut_cycle_above(i)
        self._adopt()
        self.entries = {
            i
            for i, span in by_id.items()
            if (i not in self.parent)
            or by_id[self.parent[i]].service != span.service
            or (self.why.get(i) in ("missing", "cycle") and span.kind in ("Server", "Consumer"))
        }

    def early(self, i: str) -> tuple[int, str]:
        return self.spans[i].start_unix_ns, i

    def _cut_cycle_above(self, i: str) -> None:
        chain = [i]
        while chain[-1] in self.parent:
            above = self.parent[chain[-1]]
            if above in chain:
                first = min(chain[chain.index(above) :], key=self.early)
                del self.parent[first]
                self.why[first] = "cycle"
                return
            chain.append(above)

    def top(self, i: str) -> str:
        while i in self.parent:
            i = self.parent[i]
        return i

    def _adopt(self) -> None:
        roots = [i for i, why in self.why.items() if why == "absent"]
        if not roots:
            return
        main = min(roots, key=self.early)
        hosts: dict[str, str] = {}
        for i, span in self.spans.items():
            rooted = self.why.get(self.top(i)) == "absent"
            if rooted and (i not in self.parent or self.spans[self.parent[i]].service != span.service):
                hosts[span.service] = min(hosts.get(span.service, i), i, key=self.early)
        adopted = {}
        for i, why in self.why.items():
            if why == "absent":
                continue
            for host in (hosts.get(self.spans[i].service), main):
                if (
                    host
                    and self.spans[host].start_unix_ns <= self.spans[i].start_unix_ns < self.spans[host].end_unix_ns
                ):
                    adopted[i] = host
                    break
        self.parent.update(adopted)

    def children(self, i: str) -> list[str]:
        return [c for c, p in self.parent.items() if p == i]

    def detached(self, i: str) -> bool:
        span = self.spans[i]
        if i not in self.parent:
            return False
        above = self.spans[self.parent[i]]
        marked = span.attributes.get("tailtrace.blocking") == "false"
        return marked or (span.kind == "Consumer" and above.kind == "Producer")

    def layer_spans(self, i: str) -> list[Span]:
        """Everything below that is not detached, nor below what is."""
        out = []
        for child in self.children(i):
            if not self.detached(child):
                out.append(self.spans[child])
                out += self.layer_spans(child)
        return out

    def self_label(self, i: str, entry: str) -> str:
        span = self.spans[i]
        if stage_of(span):
            return stage_of(span)
        if span.kind == "Client":
            kids = [self.spans[c] for c in self.children(i)]
            remote = any(kid.service != span.service or kid.kind == "Server" for kid in kids)
            return "network" if remote else "external"
        return "unexplained" if i == entry else "app"


def _tie(span: Span) -> tuple[int, int, int]:
    from tailtrace.analytics.judge.batch import KINDS
    from tailtrace.stages import INDEX

    return INDEX.get(stage_of(span), -1), KINDS.get(span.kind, 0), int(span.parent_span_id or "0", 16)


def attribute(tree: Tree, entry: str, until_ns: int | None = None) -> Times:
    """Nanoseconds by stage over [start, until], `until` an offset from the start (the whole request if None)."""
    root = tree.spans[entry]
    lo = root.start_unix_ns
    hi = root.end_unix_ns if until_ns is None else lo + until_ns
    cuts = {lo, hi}
    layer = [span for span in tree.layer_spans(entry) if stage_of(span) in GENERATION_ORDER]
    for span in layer:
        cuts |= {span.start_unix_ns, span.end_unix_ns}
    owners: list[tuple[int, int, str]] = []
    _sweep(tree, entry, entry, lo, hi, owners)
    for start, end, _ in owners:
        cuts |= {start, end}
    times: Times = defaultdict(int)
    edges = sorted(cut for cut in cuts if lo <= cut <= hi)
    for a, b in pairwise(edges):
        active = {stage_of(span) for span in layer if span.start_unix_ns <= a and span.end_unix_ns >= b}
        if active:
            times[min(active, key=GENERATION_ORDER.index)] += b - a
        else:
            times[next(label for start, end, label in owners if start <= a and end >= b)] += b - a
    return {stage: ns for stage, ns in times.items() if ns}


def _sweep(tree: Tree, entry: str, i: str, lo: int, hi: int, out: list[tuple[int, int, str]]) -> None:
    """Step 4, as it is written."""
    kids = [tree.spans[c] for c in tree.children(i) if not tree.detached(c)]
    label = tree.self_label(i, entry)
    cursor = hi
    while cursor > lo:
        blocking = [k for k in kids if k.start_unix_ns < cursor]
        if not blocking:
            break
        best = min(blocking, key=lambda k: (-min(k.end_unix_ns, cursor), -k.start_unix_ns, k.span_id))
        end = min(best.end_unix_ns, cursor)
        if end <= lo:
            break
        if end < cursor:
            out.append((end, cursor, label))
        _sweep(tree, entry, best.span_id, max(best.start_unix_ns, lo), end, out)
        cursor = best.start_unix_ns
        kids.remove(best)
    if cursor > lo:
        out.append((lo, cursor, label))

"""The fast judge against the slow twin, and what must hold of any trace whatever."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrace import stages
from tailtrace.analytics.attribution.attribute import Spans, attribute
from tailtrace.analytics.attribution.tree import build
from tailtrace.analytics.judge import Judged, judge_spans
from tailtrace.analytics.trace import Span
from tests.analytics.twin import Tree
from tests.analytics.twin import attribute as twin_attribute

TRACE = "0af7651916cd43dd8448eb211c80319c"
_STAGES = ["", "", "", "auth", "tokenize", "queue", "prefill", "decode", "stream_out", "preempted", "custom", "forward"]


@st.composite
def traces(draw: st.DrawFn) -> list[Span]:
    """Any shape: missing parents, cycles, duplicates, several roots, spans that ended before they began."""
    count = draw(st.integers(1, 14))
    spans = []
    for k in range(count):
        start = draw(st.integers(0, 40))
        length = draw(st.integers(-2, 40))
        parent = draw(st.integers(-1, count))
        attributes = {}
        if stage := draw(st.sampled_from(_STAGES)):
            attributes["tailtrace.stage"] = stage
            if draw(st.integers(0, 7)) == 0:
                attributes["tailtrace.blocking"] = "false"
        if k == 0:
            attributes |= {"tailtrace.ttft_ns": str(draw(st.integers(0, 40)))}
        spans.append(
            Span(
                trace_id=TRACE,
                span_id=f"{draw(st.integers(1, count)) if draw(st.integers(0, 9)) == 0 else k + 1:016x}",
                parent_span_id="" if parent < 0 or k == 0 else f"{parent + 1:016x}",
                name=draw(st.sampled_from(["a", "b"])),
                kind=draw(st.sampled_from(["Internal", "Internal", "Server", "Client", "Producer", "Consumer"])),
                service=draw(st.sampled_from(["s", "s", "s", "t"])),
                start_unix_ns=start,
                end_unix_ns=max(start + length, start),
                clock_fault=length < 0,
                attributes=attributes,
            )
        )
    return spans


def stage_times(judged: Judged, suffix: str = "Ns") -> dict[str, int]:
    row = judged.row
    times = {
        name: row[f"{stages.BY_NAME[name].column}{suffix}"]
        for name in stages.NAMES
        if f"{stages.BY_NAME[name].column}{suffix}" in row
    }
    times["unexplained"] = row[f"Unexplained{suffix}"]
    return {stage: ns for stage, ns in times.items() if ns}


@settings(max_examples=400, deadline=None)
@given(traces())
def test_equals_the_definition(spans: list[Span]) -> None:
    tree = Tree(spans)
    judged = judge_spans(spans)
    assert {j.row["SpanId"] for j in judged} == tree.entries
    for one in judged:
        entry = one.row["SpanId"]
        assert stage_times(one) == twin_attribute(tree, entry)
        if one.row["TtftNs"] is not None:
            assert stage_times(one, "TtftNs") == twin_attribute(tree, entry, one.row["TtftNs"])


@settings(max_examples=200, deadline=None)
@given(traces(), st.randoms(use_true_random=False))
def test_sums_are_exact_and_order_does_not_matter(spans: list[Span], rng: random.Random) -> None:
    judged = judge_spans(spans)
    for one in judged:
        row = one.row
        assert sum(stage_times(one).values()) == row["DurationNs"] == row["End"] - row["Start"] >= 0
        assert sum(stage_times(one, "TtftNs").values()) == (row["TtftNs"] or 0)
        assert sum(step["ns"] for step in row["Path"]) == row["DurationNs"]
        cursor = row["Start"]
        for segment in one.segments:
            assert segment.start_unix_ns == cursor < segment.end_unix_ns
            cursor = segment.end_unix_ns
        assert cursor == row["End"]
    shuffled = list(spans)
    rng.shuffle(shuffled)
    again = {j.row["SpanId"]: j for j in judge_spans([*shuffled, *spans])}
    unordered = ("Path", "Name")
    assert len(again) == len(judged)
    for one in judged:
        other = again[one.row["SpanId"]].row
        assert {k: v for k, v in one.row.items() if k not in unordered} == {
            k: v for k, v in other.items() if k not in unordered
        }


def big_trace(count: int, parent_of: str) -> tuple[int, int]:
    """(nanoseconds attributed, duration) of one trace of `count` spans."""
    k = np.arange(count)
    ids = (k + 1).astype(np.uint64)
    parents = np.where(k == 0, 0, ids[np.maximum(k - 1, 0)] if parent_of == "previous" else 1).astype(np.uint64)
    starts, ends = (k, 2 * count - k) if parent_of == "previous" else (k * 7919 % count, k * 7919 % count + 50)
    starts, ends = starts.astype(np.int64), ends.astype(np.int64)
    starts[0], ends[0] = 0, 2 * count
    kinds, services = np.ones(count, np.uint8), (k % 2 if parent_of == "previous" else k * 0).astype(np.int32)
    no = np.zeros(count, np.bool_)
    forest = build(np.array([0, count]), ids, parents, starts, ends, services, kinds, no, np.zeros(count, np.int64), 2)
    none = np.zeros(0, np.int64)
    spans = Spans(
        ids, starts, ends, services, kinds, services, np.where(k % 3, -1, stages.INDEX["decode"]).astype(np.int8), no,
        np.full(count, -1, np.int64), no, np.zeros(count + 1, np.int64), none.astype(np.int8), none, none,
    )  # fmt: skip
    entries = np.flatnonzero(forest.entry)
    found = attribute(entries, np.full(len(entries), -1, np.int64), spans, forest)
    assert (found.total.sum(axis=1) == (ends - starts)[entries]).all()
    return int(found.total[0].sum()), 2 * count


def test_a_chain_of_a_hundred_thousand_services_is_linear_work() -> None:
    """Quadratic work would take hours here, recursion would overflow."""
    attributed, duration = big_trace(100_000, "previous")
    assert attributed == duration


def test_a_parent_of_a_hundred_thousand_children() -> None:
    attributed, duration = big_trace(100_000, "first")
    assert attributed == duration

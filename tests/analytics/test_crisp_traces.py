"""CRISP's own test traces: the same critical path, or one that differs by our rule for overlapping siblings.

CRISP drops a sibling that overlaps the one taken after it, and within a tolerance takes both in full at their parent's
expense. Here a sibling counts up to the cursor: what it did until the next one began did hold the request back.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tailtrace.analytics.judge import judge_spans
from tailtrace.analytics.trace import Span

FOLDER = Path(__file__).parent.parent / "data" / "critical-path"
CLIPPED = {
    10: {"[S1] O1": 402, "[S2] O2": 199, "[S3] O3": 99, "[S4] O4": 300},
    12: {"[S1] O1": 40, "[S2] O2": 35, "[S3] O3": 5, "[S4] O4": 20},
    13: {"[S1] O1": 40, "[S2] O2": 35, "[S3] O3": 5, "[S4] O4": 20},
    14: {"[S1] O1": 25, "[S2] O2": 10, "[S3] O3": 20, "[S4] O4": 25},
    16: {
        "[S1] O1": 40, "[S2] O2": 5, "[S3] O3": 15, "[S4] O4": 10, "[S5] O5": 10, "[S6] O6": 20, "[S7] O7": 10,
    },
    19: {"[S1] O1": 10, "[S2] O2": 195, "[S3] O3": 95, "[S4] O4": 300},
    20: {"[S1] O1": 10, "[S2] O2": 195, "[S3] O3": 95, "[S4] O4": 300},
    21: {"[S1] O1": 10, "[S2] O2": 195, "[S3] O3": 95, "[S4] O4": 300},
}  # fmt: skip
KINDS = {"client": "Client", "server": "Server", "producer": "Producer", "consumer": "Consumer"}


def hex_id(name: str) -> str:
    return name.encode().hex().rjust(16, "0")


def read(number: int) -> tuple[list[Span], dict[str, int]]:
    """The spans of a trace, and nanoseconds by operation as CRISP has them."""
    content = json.loads((FOLDER / f"crisp_{number}.json").read_text())
    [trace] = content["data"]
    spans = []
    for span in trace["spans"]:
        parents = [ref["spanID"] for ref in span["references"] if ref["refType"] == "CHILD_OF"]
        kinds = [tag["value"] for tag in span.get("tags") or [] if tag["key"] == "span.kind"]
        spans.append(
            Span(
                trace_id="0" * 31 + "1",
                span_id=hex_id(span["spanID"]),
                parent_span_id=hex_id(parents[0]) if parents else "",
                name=span["operationName"],
                kind=KINDS.get(kinds[0], "Internal") if kinds else "Internal",
                service=trace["processes"][span["processID"]]["serviceName"],
                start_unix_ns=span["startTime"],
                end_unix_ns=span["startTime"] + span["duration"],
            )
        )
    expected = content["testing"]
    if isinstance(expected, list):
        expected = expected[0]
    exclusive = expected.get("opTimeExclusive", expected)
    return spans, {operation: ns for operation, ns in exclusive.items() if ns}


@pytest.mark.parametrize("number", range(1, 26))
def test_trace(number: int) -> None:
    spans, theirs = read(number)
    [root] = [judged for judged in judge_spans(spans) if judged.row["IsRoot"]]
    ours: Counter[str] = Counter()
    for segment in root.segments:
        ours[f"[{segment.service}] {segment.name}"] += segment.duration_ns
    assert dict(ours) == CLIPPED.get(number, theirs)
    assert sum(ours.values()) == root.row["DurationNs"]

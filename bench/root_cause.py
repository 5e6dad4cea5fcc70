"""Which service is at fault, ranked from traces alone: `python bench/root_cause.py [DAY.parquet ...]`.

A day is a Parquet file of spans (minute, trace, span, parent, pod, op, start_ns, end_ns) with a fault list beside it
(DAY.fault_list.json: inject_time, inject_pod, inject_type). Spans go through the product's own judge; the ranking is
that of `analytics.statistics.root_cause`. A fault counts where traces of its minutes are stored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import arguments, report

from tailtrace.analytics.judge.batch import from_inbox
from tailtrace.analytics.judge.judge import judge_batch
from tailtrace.analytics.queries.root_cause import paths_of
from tailtrace.analytics.statistics.root_cause import kinds_of, rank

DAY = Path(__file__).resolve().parents[2] / "shared" / "data" / "root-cause" / "2022-08-22.parquet"
LATENCY = ("cpu_contention", "cpu_consumed", "network_delay")
TRACES_AT_ONCE = 4_000
LASTS_NS = 180_000_000_000  # what is stored of a fault


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("files", nargs="*", type=Path, default=[DAY])
    options = parser.parse_args()
    found = [place for file in options.files for place in one_day(file)]
    report(
        "root_cause",
        options.seed,
        {
            "n": len(found),
            "top1": sum(place == 1 for place in found),
            "top3": sum(place <= 3 for place in found),
        },
    )


def one_day(file: Path) -> list[int]:
    """The place that each latency fault's pod has in the ranking."""
    began_ns, scored, kind, pods = judged(pq.read_table(file))
    places = []
    for fault in faults(file):
        injected = int(fault["inject_timestamp"]) * 1_000_000_000
        here = (began_ns >= injected) & (began_ns < injected + LASTS_NS)
        name = f"  {fault['inject_time']}  {fault['inject_type']:15s} {fault['inject_pod'].split('-')[0]:24s}"
        if not here.any() or fault["inject_pod"] not in pods:
            print(f"{name} -   no traces of its minutes are stored")
            continue
        extra = rank(scored, kind, here, ~here)
        order = np.argsort(-extra, kind="stable")
        places.append([pods[k] for k in order].index(fault["inject_pod"]) + 1)
        top = ", ".join(f"{pods[k].split('-')[0]} {extra[k] / 1e6:+.2f} ms" for k in order[:3])
        print(f"{name} {places[-1]}.  {top}")
    return places


def faults(file: Path) -> list[dict[str, str]]:
    listed = json.loads(file.with_suffix("").with_suffix(".fault_list.json").read_text(encoding="utf-8"))
    return [fault for hour in listed.values() for fault in hour if fault["inject_type"] in LATENCY]


def judged(spans: pa.Table) -> tuple[Any, Any, Any, list[str]]:
    """By root request its start, scored time by pod, and kind (its name and number of spans); and the pods."""
    pods = sorted({*spans["pod"].unique().to_pylist()})
    minutes = spans["minute"].combine_chunks()
    number = minutes.indices if pa.types.is_dictionary(minutes.type) else minutes.dictionary_encode().indices
    traces = number.to_numpy().astype(np.int64) * (1 << 32) + spans["trace"].to_numpy()
    order = np.argsort(traces, kind="stable")
    spans, traces = spans.take(pa.array(order)), traces[order]
    starts = np.append(np.flatnonzero(np.append(True, traces[1:] != traces[:-1])), len(traces))
    began, scored, names, sizes = [], [], [], []
    for at in range(0, len(starts) - 1, TRACES_AT_ONCE):
        first, last = starts[at], starts[min(at + TRACES_AT_ONCE, len(starts) - 1)]
        rows = judge_batch(from_inbox(inbox(spans.slice(first, last - first), traces[first:last])), {}).rows
        rows = rows.filter(rows["IsRoot"])
        began.append(rows["Start"].cast(pa.int64()).to_numpy())
        scored.append(paths_of(rows["Path"], pods).by_request(rows.num_rows))
        names += rows["Name"].to_pylist()
        sizes.append(rows["SpanCount"].to_numpy())
    kind = kinds_of([np.unique(names, return_inverse=True)[1], np.concatenate(sizes)])
    return np.concatenate(began), np.concatenate(scored), kind, pods


def inbox(spans: pa.Table, traces: Any) -> pa.Table:
    """The spans as the product's inbox has them: a span whose child is in another pod is a client's."""
    n = spans.num_rows
    ids, parents = spans["span"].to_numpy().astype(np.int64), spans["parent"].to_numpy().astype(np.int64)
    pod = spans["pod"].cast(pa.string()).to_numpy(zero_copy_only=False).astype(str)
    first = np.searchsorted(traces, traces)
    key = np.where(parents >= 0, traces * (1 << 20) + parents, -1)
    own = traces * (1 << 20) + ids
    by_own = np.argsort(own)
    at = by_own[np.minimum(np.searchsorted(own[by_own], key), n - 1)]
    has_parent = (parents >= 0) & (own[at] == key)
    remote = has_parent & (pod[at] != pod)
    kind = np.full(n, "Internal", dtype=object)
    kind[remote] = "Server"
    kind[parents < 0] = "Server"
    kind[at[remote]] = "Client"
    span_id = (first + ids + 1).astype(np.uint64) + (traces.astype(np.uint64) << np.uint64(24))
    parent_id = np.where(
        parents >= 0, (first + parents + 1).astype(np.uint64) + (traces.astype(np.uint64) << np.uint64(24)), 0
    )
    raw = np.zeros((n, 2), ">u8")
    raw[:, 0] = traces
    raw[:, 1] = traces
    start, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    none = pa.array([""] * n)
    return pa.table(
        {
            "TraceId": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, pa.py_buffer(raw.tobytes())]),
            "SpanId": span_id,
            "ParentSpanId": parent_id.astype(np.uint64),
            "StartNs": start,
            "DurationNs": np.maximum(end - start, 0).astype(np.uint64),
            "ClockFault": end < start,
            "Kind": pa.array(kind, pa.string()),
            "Service": pa.array(pod, pa.string()),
            "Name": spans["op"].cast(pa.string()),
            "Scope": none,
            "Status": pa.array(["Unset"] * n),
            "Stage": none,
            "StageName": none,
            "Blocking": np.ones(n, np.bool_),
            "Resource": np.zeros(n, np.uint64),
            "HasAttributes": np.zeros(n, np.bool_),
            "Attributes": pa.array([[]] * n, pa.map_(pa.string(), pa.string())),
        }
    )


if __name__ == "__main__":
    main()

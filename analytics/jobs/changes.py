"""The `changes` job: judges every series that has news, up to where its data are complete.

It starts from what is stored, not from ticks: the histograms of the last two weeks and the changes of before. A round
that comes twice, late, or after a kill finds the same changes under the same ids. Late requests change a series' count,
and it is judged again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tailtrace.analytics.detection.counts import INTERVAL_S, PER_DAY, PER_HOUR
from tailtrace.analytics.detection.cusum import THRESHOLD
from tailtrace.analytics.detection.detector import EPOCH, REFERENCE_INTERVALS, WARM_REQUESTS, Judged, detect
from tailtrace.analytics.freshness import complete_until, watermark_ns
from tailtrace.analytics.jobs import change_rows, series
from tailtrace.analytics.jobs.change_cause import explained
from tailtrace.analytics.jobs.change_rows import ChangeRow, Key
from tailtrace.analytics.jobs.cost_shifts import cost_shifts
from tailtrace.analytics.jobs.marker_effects import judge_markers
from tailtrace.analytics.jobs.markers import find_markers
from tailtrace.analytics.jobs.series import METRICS, Total
from tailtrace.ingest.store import Store

STAGES: Final = "stages"
"""What the state of a series' cost shifts is kept under, beside its metrics."""
MOST_OF_ALL: Final = 0.9
ROUTE_FACTOR: Final = 1.25
"""Routes are many: each needs a little more before it is suspected than the service as a whole."""
JUDGED_INTERVALS: Final = 2 * PER_DAY
"""Later requests of older intervals change the rollups, but are not judged any more."""
_STATES: Final = """
SELECT Service AS service, Model AS model, Route AS route, toInt64(toUnixTimestamp(JudgedUpTo)) AS upto, Requests AS n
FROM series_state FINAL WHERE Metric = {metric:String}
"""
_SCHEMA: Final = pa.schema(
    [
        ("Metric", pa.string()), ("Service", pa.string()), ("Model", pa.string()),
        ("Route", pa.string()), ("JudgedUpTo", pa.timestamp("s", "UTC")), ("Requests", pa.uint64()),
        ("Learning", pa.uint32()), ("LearningOf", pa.uint32()), ("Covered", pa.float64()),
        ("UpdatedAt", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ChangesReport:
    """Series judged in this round, and rows of changes written."""

    series: int = 0
    written: int = 0


def run_changes(store: Store, *, zone: str = "UTC", watermark: int | None = None) -> ChangesReport:
    """One round. `watermark` (ns) is the requests job's unless given. `zone`: whose hours of the week recur."""
    with _lock:
        return _round(store, zone, watermark)


def _round(store: Store, zone: str, watermark: int | None) -> ChangesReport:
    if watermark is None:
        watermark = watermark_ns(store)
    newest = series.newest_interval(store)
    if watermark is None or newest is None:
        return ChangesReport()
    head = min(newest + 1, watermark // (INTERVAL_S * 10**9))
    judged = _judged(store, "duration")
    dirty = _with_news(store, head, watermark, judged)
    if not dirty:
        return ChangesReport()
    since_s = (head - REFERENCE_INTERVALS - JUDGED_INTERVALS) * INTERVAL_S
    stored = change_rows.load(store, since_s)
    written: list[ChangeRow] = []
    states: list[tuple[Any, ...]] = []
    for total, until in dirty:
        for metric in METRICS[:1] if total.route else METRICS:
            key = metric, total.service, total.model, total.route
            found, from_interval = _judge(store, key, until, stored, zone)
            if found is None:
                continue
            written += change_rows.merged(key, stored, found.changes, from_interval * INTERVAL_S)
            states.append((*key, until * INTERVAL_S, total.n, *(found.learning or (0, 0)), found.covered))
    written += _shifted(store, dirty, [*stored, *written], states)
    fresh = [row for row in written if row.confirmed is not None and not row.body]
    if fresh:
        written = _explained(store, written, stored, since_s)
    elif any(state[0] == "duration" for state in states):
        judge_markers(store, find_markers(store, (head - JUDGED_INTERVALS) * INTERVAL_S), head * INTERVAL_S)
    change_rows.save(store, written)
    _save_states(store, states)
    return ChangesReport(len(dirty), len(written))


def _judged(store: Store, metric: str) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Up to where (Unix seconds), and with how many requests, each service, model and route was judged."""
    rows = store.query(_STATES, {"metric": metric}, role="jobs")
    return {
        (str(row["service"]), str(row["model"]), str(row["route"])): (int(row["upto"]), int(row["n"])) for row in rows
    }


def _shifted(
    store: Store, dirty: Sequence[tuple[Total, int]], rows: Sequence[ChangeRow], states: list[tuple[Any, ...]]
) -> list[ChangeRow]:
    """Cost shifts of services and models that have a new whole hour; notes in `states` that it was looked at."""
    judged = _judged(store, STAGES)
    newest = {row.id: row for row in rows}
    found: list[ChangeRow] = []
    for total, until in dirty:
        hour = until // PER_HOUR * PER_HOUR
        if total.route or judged.get((total.service, total.model, ""), (0, 0))[0] >= hour * INTERVAL_S:
            continue
        key = "duration", total.service, total.model, ""
        own = [row for row in newest.values() if row.series[1:] == key[1:]]
        found += cost_shifts(store, key, hour, own)
        states.append((STAGES, *key[1:], hour * INTERVAL_S, total.n, 0, 0, 0.0))
    return found


def _with_news(
    store: Store, head: int, watermark: int, judged: dict[tuple[str, str, str], tuple[int, int]]
) -> list[tuple[Total, int]]:
    """Series that were not judged up to where they are complete, or have other counts since; and where that is."""

    def news(until: int) -> dict[tuple[str, str, str], Total]:
        since = until - JUDGED_INTERVALS - EPOCH
        whole = series.totals(store, since, until)
        requests = {(each.service, each.model): each.n for each in whole}
        # The route that nearly all requests take is the series itself.
        parts = [
            each
            for each in series.routes(store, since, until, WARM_REQUESTS)
            if each.n < MOST_OF_ALL * requests.get((each.service, each.model), 0)
        ]
        return {
            (each.service, each.model, each.route): each
            for each in (*whole, *parts)
            if judged.get((each.service, each.model, each.route)) != (until * INTERVAL_S, each.n)
        }

    at_head = news(head)
    by_until: dict[int, set[str]] = {}
    for service in {each.service for each in at_head.values()}:
        complete = complete_until(store, service, watermark=watermark)
        until = head if complete is None else min(head, complete // (INTERVAL_S * 10**9))
        by_until.setdefault(until, set()).add(service)
    return [
        (total, until)
        for until, services in by_until.items()
        for total in (at_head if until == head else news(until)).values()
        if total.service in services
    ]


def _judge(store: Store, key: Key, until: int, stored: Sequence[ChangeRow], zone: str) -> tuple[Judged | None, int]:
    """The judgement of a series, and the interval from which on it looked for changes."""
    since = until - REFERENCE_INTERVALS - JUDGED_INTERVALS
    cells = series.cells(store, key, since, until)
    if not len(cells):
        return None, until
    # At the edges of epochs, so that the next round makes the same references.
    start = max((until - JUDGED_INTERVALS) // EPOCH * EPOCH, cells.first)
    if float(cells.n.sum()) < WARM_REQUESTS:
        return Judged([], (int(cells.n.sum()), WARM_REQUESTS), 0.0, cells.first, None), start
    own = [row for row in stored if row.series == key and row.confirmed is not None and not row.on_top]
    known = [row.found() for row in own if row.onset < start * INTERVAL_S and row.state != "withdrawn"]
    threshold = THRESHOLD * (ROUTE_FACTOR if key[3] else 1.0)
    return detect(cells, until=until, judge_from=start, known=known, zone=zone, threshold=threshold), start


def _explained(
    store: Store, written: Sequence[ChangeRow], stored: Sequence[ChangeRow], since_s: int
) -> list[ChangeRow]:
    """The rows with stage, cause and body where a change was confirmed just now."""
    markers = find_markers(store, since_s)
    now = {row.id: row for row in stored} | {row.id: row for row in written}
    for row in sorted(written, key=lambda each: (bool(each.route), each.onset, each.metric)):
        if row.confirmed is not None and not row.body and row.state != "withdrawn":
            now[row.id] = explained(store, row, markers, [each for each in now.values() if each.cause])
    return [now[row.id] for row in written]


def _save_states(store: Store, states: Sequence[tuple[Any, ...]]) -> None:
    if not states:
        return
    now = time.time_ns() // 1000
    columns = [*(list(column) for column in zip(*states, strict=True)), [now] * len(states)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    store.insert_arrow("series_state", pa.Table.from_arrays(arrays, schema=_SCHEMA), role="jobs")

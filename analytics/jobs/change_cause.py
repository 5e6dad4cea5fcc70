"""What a confirmed change is about: its stage, how much is only traffic, examples, and the deploy beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np
import orjson

from tailtrace.analytics.detection.counts import INTERVAL_S
from tailtrace.analytics.detection.stages import growth
from tailtrace.analytics.jobs.change_rows import ChangeRow, Key
from tailtrace.analytics.jobs.markers import Marker
from tailtrace.analytics.jobs.series import STAGES, stage_cells
from tailtrace.analytics.jobs.series import cells as cells_of
from tailtrace.analytics.queries.compare import Comparison, PercentileChange, compare
from tailtrace.analytics.queries.selection import Selection
from tailtrace.analytics.statistics.percentiles import percentile_of_buckets
from tailtrace.ingest.store import Store

BEFORE_S: Final = 24 * 3600
SAME_CAUSE_S: Final = 1800
MARKER_BEFORE_S: Final = 1200
MARKER_AFTER_S: Final = 600
EXAMPLES: Final = 3
_ROWS: Final = 6_000
_EXAMPLES: Final = """
SELECT TraceId AS trace_id, toString(toUnixTimestamp64Nano(Start)) AS start_unix_ns, DurationNs AS duration_ns
FROM requests FINAL WHERE Service = {service:String} AND Model = {model:String}
  AND ({route:String} = '' OR Route = {route:String}) AND Outcome = 'ok' AND Kind = 'request'
  AND toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC')
  AND toStartOfMinute(End) < toDateTime64({until:Int64}, 0, 'UTC')
ORDER BY multiIf({metric:String} = 'ttft', ifNull(TtftNs, 0), {metric:String} = 'tpot', ifNull(TpotNs, 0), DurationNs)
  DESC LIMIT {limit:UInt32}
"""
# Rows that a later span re-opened come as (-old, +new). A second counts where its minute had requests that ended.
_OUTPUT: Final = """
SELECT toFloat64(sum(toInt64(Sign) * SampleWeight * OutputTokens)) AS tokens,
  toFloat64(sum(toInt64(Sign) * SampleWeight * DurationNs)) AS ns,
  toFloat64(60 * uniqExact(toStartOfMinute(End))) AS seconds
FROM requests WHERE Service = {service:String} AND Model = {model:String}
  AND ({route:String} = '' OR Route = {route:String}) AND Outcome = 'ok' AND Kind = 'request' AND OutputTokens > 0
  AND NOT has(Flags, 'clock_fault')
  AND toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC')
  AND toStartOfMinute(End) < toDateTime64({until:Int64}, 0, 'UTC')
"""


def explained(store: Store, row: ChangeRow, markers: Sequence[Marker], told: Sequence[ChangeRow]) -> ChangeRow:
    """The change with its stage, cause, marker and body. `told` are the changes that have theirs already."""
    after = row.onset, max(row.confirmed or row.suspected, row.onset + INTERVAL_S)
    before = max(row.onset - BEFORE_S, _below(row, told)), row.onset
    spans = [(since // INTERVAL_S, until // INTERVAL_S) for since, until in (before, after)]
    # TPOT's stages are those after the first token: what came before cannot have changed it.
    grown = growth(STAGES, *stage_cells(store, row.series, spans[0], spans[1]))
    stage, share = (grown[0].stage, grown[0].share) if grown and grown[0].share > 0 else ("", 0.0)
    marker = nearest(row, markers)
    made = replace(row, stage=stage, stage_share=share, marker=marker.id if marker else "")
    made = replace(made, cause=cause_of(made, told))
    body: dict[str, Any] = {
        "before_unix_s": list(before),
        "after_unix_s": list(after),
        "growth": [asdict(each) for each in grown[:5] if each.share > 0],
        "marker": asdict(marker) if marker else None,
    }
    # Of fifty routes with one cause the service tells the figures; a single one tells its own.
    if not row.route or not any(each.route and each.cause == made.cause for each in told):
        body |= _figures(store, row, before, after)
    return replace(made, body=orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY).decode())


def _figures(store: Store, row: ChangeRow, before: tuple[int, int], after: tuple[int, int]) -> dict[str, Any]:
    filters = {"model": row.model} | ({"route": row.route} if row.route else {})
    sides = [Selection(row.service, since * 10**9, until * 10**9, filters) for since, until in (before, after)]
    comparison = compare(store, sides[0], sides[1], limit=_ROWS)
    metric = "duration" if row.metric == "tpot" else row.metric
    main = headline(comparison, metric)
    parameters = {
        "service": row.service, "model": row.model, "route": row.route, "metric": row.metric, "since": after[0],
        "until": after[1], "limit": EXAMPLES,
    }  # fmt: skip
    return {
        "change": asdict(main) if main else None,
        "n": [comparison.a.n, comparison.b.n],
        "intervals_ns": [_interval(store, (metric, *row.series[1:]), side, main.q) for side in (before, after)]
        if main
        else [],
        "conditions": [asdict(each) for each in comparison.conditions if each.name != "version"][:5],
        "output": [_output(store, row, side) for side in (before, after)],
        "examples": store.query(_EXAMPLES, parameters, role="jobs"),
    }


def _output(store: Store, row: ChangeRow, side: tuple[int, int]) -> dict[str, float | None]:
    """Duration / output tokens of all requests together, in ns, and output tokens a second of the minutes with any;
    None where no output is known.
    """
    parameters = {
        "service": row.service, "model": row.model, "route": row.route, "since": side[0], "until": side[1],
    }  # fmt: skip
    (found,) = store.query(_OUTPUT, parameters, role="jobs")
    tokens, seconds = found["tokens"] or 0.0, found["seconds"] or 0.0
    if tokens <= 0 or seconds <= 0:
        return {"per_token_ns": None, "tokens_per_s": None}
    return {"per_token_ns": found["ns"] / tokens, "tokens_per_s": tokens / seconds}


def _interval(store: Store, key: Key, side: tuple[int, int], q: float) -> list[int | None]:
    """The 95 % interval of a percentile in a range of Unix seconds."""
    cells = cells_of(store, key, side[0] // INTERVAL_S, side[1] // INTERVAL_S)
    buckets, index = np.unique(cells.bucket, return_inverse=True)
    counted = np.bincount(index, cells.n, len(buckets)).astype(np.int64)
    found = percentile_of_buckets(q, list(zip(buckets.tolist(), counted.tolist(), strict=True)))
    return [found.low_ns, found.high_ns]


def _below(row: ChangeRow, told: Sequence[ChangeRow]) -> int:
    """For a change on top of another: since when that one had lasted. 0 for others."""
    under = [
        each.onset
        for each in told
        if row.on_top and not each.on_top and each.series == row.series and each.onset < row.onset
    ]
    return max(under, default=0)


def headline(comparison: Comparison, metric: str) -> PercentileChange | None:
    """The highest percentile that both sides have enough requests for; the median where none has."""
    own = [change for change in comparison.changes if change.metric == metric]
    sure = [change for change in own if not change.hollow]
    return sure[-1] if sure else own[0] if own else None


def cause_of(row: ChangeRow, told: Sequence[ChangeRow]) -> str:
    """The cause of a change that began at about the same time in the same stage, or just then for the same model; its
    own id where there is none.
    """
    for other in sorted(told, key=lambda each: each.onset):
        apart = abs(other.onset - row.onset)
        same = other.stage == row.stage and apart <= SAME_CAUSE_S
        # A slow GPU shows in prefill and in decode: what begins together for a model is one incident.
        same |= other.model == row.model and apart <= INTERVAL_S
        going = other.until is None or other.until > row.onset
        if other.id != row.id and other.cause and same and going:
            return other.cause
    return row.id


def nearest(row: ChangeRow, markers: Sequence[Marker]) -> Marker | None:
    """The marker of the service, else of any, nearest to the onset within twenty minutes before or ten after."""
    near = [
        marker
        for marker in markers
        if row.onset - MARKER_BEFORE_S <= marker.time_ms / 1000 <= row.onset + MARKER_AFTER_S
    ]
    own = [marker for marker in near if marker.service == row.service]
    return min(own or near, key=lambda marker: abs(marker.time_ms / 1000 - row.onset), default=None)

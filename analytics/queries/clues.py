"""What a window's log lines and the engines' own metrics say beside its times: clues, to which no time is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tailtrace.analytics.queries.together import together
from tailtrace.analytics.verdicts import thresholds as limit
from tailtrace.analytics.verdicts.verdict import Evidence
from tailtrace.ingest.store import Store

PATTERNS: Final = 8
_LONGEST: Final = 200  # characters of a pattern
# Ids, numbers and what is quoted differ from line to line; the rest is what the line says.
_PATTERN: Final = (
    r"replaceRegexpAll(substringUTF8(Body, 1, 400), '''[^'']*''|\"[^\"]*\"|0x[0-9a-fA-F]+|[0-9a-fA-F-]{16,}|[0-9]+',"
    " '#')"
)
# A line is of the service, or of a request that it served, wherever that was written.
_LOGS: Final = (
    "SELECT severity, service, pattern, countIf(now) AS n, countIf(NOT now) AS before,"
    " countIf(now AND of_request) AS traced, anyIf(id, now AND of_request) AS trace FROM ("
    "SELECT if(SeverityNumber >= 17 OR (SeverityNumber = 0 AND match(SeverityText, '(?i)^(err|fatal|crit|panic)')),"
    " 'error', 'warning') AS severity, ServiceName AS service,"
    f" substringUTF8({_PATTERN}, 1, {_LONGEST}) AS pattern,"
    " Timestamp >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AS now, TraceId AS id,"
    " TraceId IN (SELECT TraceId FROM requests WHERE Service = {service:String}"
    " AND toStartOfMinute(End) >= toStartOfMinute(fromUnixTimestamp64Nano({first:Int64}, 'UTC'))"
    " AND Start < fromUnixTimestamp64Nano({until:Int64}, 'UTC')) AS of_request FROM otel_logs"
    " WHERE toStartOfFiveMinutes(Timestamp) >= toStartOfFiveMinutes(fromUnixTimestamp64Nano({first:Int64}, 'UTC'))"
    " AND toStartOfFiveMinutes(Timestamp) <= toStartOfFiveMinutes(fromUnixTimestamp64Nano({until:Int64}, 'UTC'))"
    " AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')"
    " AND Timestamp < fromUnixTimestamp64Nano({until:Int64}, 'UTC')"
    " AND (SeverityNumber >= 13 OR (SeverityNumber = 0 AND match(SeverityText, '(?i)^(warn|err|fatal|crit|panic)')))"
    ") WHERE service = {service:String} OR of_request GROUP BY severity, service, pattern"
    " ORDER BY severity = 'error' DESC, n DESC LIMIT 2000"
)
_ANY_LOGS: Final = """
SELECT count() > 0 AS some FROM (SELECT 1 FROM otel_logs WHERE ServiceName = {service:String}
  AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp < fromUnixTimestamp64Nano({until:Int64}, 'UTC') LIMIT 1)
"""
_METRICS: Final = ("queue_depth", "running", "kv_usage")
_COUNTS: Final = ("preemptions",)
_OF_SERVICE: Final = """
 FROM {table} AS m INNER JOIN metric_names AS n ON m.MetricName = n.Name
WHERE m.ServiceName = {service:String} AND n.Canonical IN {names:Array(String)}
  AND m.TimeUnix >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND m.TimeUnix < fromUnixTimestamp64Nano({until:Int64}, 'UTC')
"""
_GAUGES: Final = (
    "SELECT n.Canonical AS name, n.Unit AS unit, n.Former AS former,"
    " m.TimeUnix >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AS now, avg(m.Value * n.Factor) AS value"
    + _OF_SERVICE.replace("{table}", "otel_metrics_gauge")
    + "GROUP BY name, unit, former, now"
)
_SUMS: Final = (
    "SELECT name, unit, former, now, sum(grown) / max(seconds) * 60 AS value FROM ("
    "SELECT n.Canonical AS name, n.Unit AS unit, n.Former AS former,"
    " m.TimeUnix >= fromUnixTimestamp64Nano({since:Int64}, 'UTC') AS now,"
    " greatest(0, argMax(m.Value, m.TimeUnix) - argMin(m.Value, m.TimeUnix)) * any(n.Factor) AS grown,"
    " (toUnixTimestamp64Nano(max(m.TimeUnix)) - toUnixTimestamp64Nano(min(m.TimeUnix))) / 1e9 AS seconds"
    + _OF_SERVICE.replace("{table}", "otel_metrics_sum")
    + "GROUP BY name, unit, former, now, m.ResourceAttributes, m.Attributes, m.StartTimeUnix HAVING seconds > 0"
    ") GROUP BY name, unit, former, now"
)


@dataclass(frozen=True, slots=True)
class LogPattern:
    """Error or warning lines that differ in numbers, ids and quoted text only. `n` in the window, `before` in the
    reference; `traced` of the `n` belong to requests of the service, one of them being `trace_id`.
    """

    severity: str
    service: str
    pattern: str
    n: int
    before: int
    traced: int
    trace_id: str | None


@dataclass(frozen=True, slots=True)
class EngineReading:
    """A metric that the engine itself tells, under its canonical name; means, of counters a minute. Null: not told."""

    metric: str
    unit: str
    before: float | None
    during: float | None


@dataclass(frozen=True, slots=True)
class Clues:
    """`patterns`: the `PATTERNS` that grew most, errors first. `seen`: whether the service writes logs or tells metrics
    at all; without either nothing can be ruled out. `findings` are what crossed its threshold.
    """

    seen: bool
    errors: int
    errors_before: int
    warnings: int
    warnings_before: int
    patterns: list[LogPattern] = field(default_factory=list)
    readings: list[EngineReading] = field(default_factory=list)
    findings: list[Evidence] = field(default_factory=list)


def clues(store: Store, service: str, reference: tuple[int, int], window: tuple[int, int]) -> Clues:
    """Of a service in a window against the time from the reference's begin on (as long as the window, where the
    reference is not before it); ns since 1970.
    """
    since, until = window
    first = reference[0] if reference[0] < since else max(0, 2 * since - until)
    bounds = {"first": first, "since": since, "until": until, "service": service}
    lines, some, gauges, sums = together([
        partial(store.query, _LOGS, bounds, role="ui"),
        partial(store.query, _ANY_LOGS, {k: bounds[k] for k in ("first", "until", "service")}, role="ui"),
        partial(store.query, _GAUGES, {**bounds, "names": list(_METRICS)}, role="ui"),
        partial(store.query, _SUMS, {**bounds, "names": list(_COUNTS)}, role="ui"),
    ])  # fmt: skip
    readings = readings_of([*gauges, *sums])
    counts = {
        (severity, side): sum(int(row[side]) for row in lines if row["severity"] == severity)
        for severity in ("error", "warning")
        for side in ("n", "before")
    }
    share = max(since - first, 1) / max(until - since, 1)
    patterns = sorted(
        (
            LogPattern(
                row["severity"], row["service"], row["pattern"], int(row["n"]), int(row["before"]), int(row["traced"]),
                row["trace"] or None,
            )
            for row in lines
            if row["n"]
        ),
        key=lambda one: (one.severity != "error", one.before / share - one.n),
    )  # fmt: skip
    findings = [
        finding
        for severity in ("error", "warning")
        if (finding := more_lines(severity, counts[severity, "n"], counts[severity, "before"] / share)) is not None
    ]
    return Clues(
        bool(lines or some[0]["some"] or readings),
        counts["error", "n"], counts["error", "before"], counts["warning", "n"], counts["warning", "before"],
        patterns[:PATTERNS], readings, [*findings, *engine_findings(readings)],
    )  # fmt: skip


def more_lines(severity: str, n: int, expected: float) -> Evidence | None:
    """Evidence that there were more lines than the reference lets expect."""
    if n < limit.LOG_LINES.value or n < limit.LOG_RATE.value * expected:
        return None
    return Evidence(f"{severity} log lines", float(n), expected, f"the reference; {limit.LOG_RATE.source}")


def readings_of(rows: Sequence[dict[str, Any]]) -> list[EngineReading]:
    """One line a metric; a name that an engine gave up counts only where the new one is not told."""
    told = {(row["name"], bool(row["now"]), bool(row["former"])): row for row in rows}
    out = []
    for name in (*_METRICS, *_COUNTS):
        sides = [told.get((name, now, False)) or told.get((name, now, True)) for now in (False, True)]
        if any(sides):
            unit = next(str(side["unit"]) for side in sides if side)
            out.append(EngineReading(name, unit, *(None if side is None else float(side["value"]) for side in sides)))
    return out


def engine_findings(readings: Sequence[EngineReading]) -> list[Evidence]:
    """Readings that grew over their thresholds."""
    out = []
    for one in readings:
        floor = {"queue_depth": 1.0, "kv_usage": limit.KV_FULL.value, "preemptions": 1.0}.get(one.metric)
        if floor is None or one.during is None or one.during < floor:
            continue
        factor = 1.0 if one.metric == "kv_usage" else limit.ENGINE_READING.value
        if one.before is not None and one.during < factor * one.before:
            continue
        unit = "preemptions a minute" if one.metric == "preemptions" else f"engine's own {one.metric}, mean"
        source = limit.KV_FULL.source if one.metric == "kv_usage" else f"the reference; {limit.ENGINE_READING.source}"
        out.append(Evidence(unit, one.during, floor if one.metric == "kv_usage" else one.before, source))
    return out

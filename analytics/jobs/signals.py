"""What each rule says now, from stored data up to where they are complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from tailtrace.analytics.alerting import limits, message
from tailtrace.analytics.alerting.episodes import Signal
from tailtrace.analytics.alerting.rules import RegressionRule, SilenceRule, SloRule, ThresholdRule, span_ns
from tailtrace.analytics.alerting.text import duration, harmless, iso, moment
from tailtrace.analytics.alerting.watching import watches
from tailtrace.analytics.jobs.change_rows import ChangeRow
from tailtrace.analytics.queries.goals import Goal
from tailtrace.analytics.queries.telemetry import telemetry
from tailtrace.ingest.store import Store

_MINUTE_NS: Final = 60 * 10**9
_HISTOGRAM: Final = """
SELECT toInt64(intDiv(toUnixTimestamp(Time), 60)) AS minute, toInt64(K) AS bucket, toInt64(sum(N)) AS n
FROM rollup_1m WHERE Metric = {metric:String} AND Service = {service:String} AND Outcome = 'ok'
  AND ({model:String} = '' OR Model = {model:String})
  AND Time >= toDateTime64({since:Int64}, 0, 'UTC') AND Time < toDateTime64({until:Int64}, 0, 'UTC')
GROUP BY minute, bucket HAVING n > 0
"""
# cancelled and rejected requests are the clients' doing: they count neither way.
_BAD_FAST: Final = """
SELECT toInt64(intDiv(toUnixTimestamp(Time), {cell:UInt32})) AS cell, toInt64(sum(N)) AS total,
  toInt64(sumIf(N, K > {limit:Int64} OR Outcome != 'ok')) AS bad
FROM rollup_1m WHERE Metric = {metric:String} AND Service = {service:String}
  AND Outcome NOT IN ('cancelled', 'rejected') AND ({model:String} = '' OR Model = {model:String})
  AND Time >= toDateTime64({since:Int64}, 0, 'UTC') AND Time < toDateTime64({until:Int64}, 0, 'UTC')
GROUP BY cell
"""
_BAD_FAST_HOURS: Final = _BAD_FAST.replace("rollup_1m", "rollup_1h")
_BAD_GOODPUT: Final = """
SELECT toInt64(intDiv(toUnixTimestamp(toStartOfMinute(End)), {cell:UInt32})) AS cell,
  toInt64(sum(Sign * SampleWeight)) AS total,
  toInt64(sumIf(Sign * SampleWeight, Outcome != 'ok' OR ifNull(TtftNs, 0) > {ttft:UInt64}
    OR ifNull(TpotNs, 0) > {tpot:UInt64})) AS bad
FROM requests WHERE Service = {service:String} AND Kind = 'request' AND Outcome NOT IN ('cancelled', 'rejected')
  AND ({model:String} = '' OR Model = {model:String}) AND NOT has(Flags, 'clock_fault')
  AND toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC')
  AND toStartOfMinute(End) < toDateTime64({until:Int64}, 0, 'UTC')
GROUP BY cell
"""
_BAD_PER_TOKEN: Final = """
SELECT toInt64(intDiv(toUnixTimestamp(toStartOfMinute(End)), {cell:UInt32})) AS cell,
  toInt64(sum(Sign * SampleWeight)) AS total,
  toInt64(sumIf(Sign * SampleWeight, Outcome != 'ok' OR DurationNs > {per_token:UInt64} * ifNull(OutputTokens, 0)))
    AS bad
FROM requests WHERE Service = {service:String} AND Kind = 'request' AND Outcome NOT IN ('cancelled', 'rejected')
  AND (OutputTokens > 0 OR Outcome != 'ok')
  AND ({model:String} = '' OR Model = {model:String}) AND NOT has(Flags, 'clock_fault')
  AND toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC')
  AND toStartOfMinute(End) < toDateTime64({until:Int64}, 0, 'UTC')
GROUP BY cell
"""
# A minute's work is that of the requests that ended in it: all of them are good, or none.
_BAD_TOKENS: Final = """
SELECT toInt64(intDiv(minute, {cell:UInt32})) AS cell, toInt64(sum(n)) AS total,
  toInt64(sum(if(tokens < 60 * {tokens_per_s:Float64}, n, failed))) AS bad
FROM (
  SELECT toUnixTimestamp(toStartOfMinute(End)) AS minute, sum(toInt64(Sign) * SampleWeight) AS n,
    sumIf(toInt64(Sign) * SampleWeight, Outcome != 'ok') AS failed,
    sumIf(toInt64(Sign) * SampleWeight * ifNull(OutputTokens, 0), Outcome = 'ok') AS tokens
  FROM requests WHERE Service = {service:String} AND Kind = 'request' AND Outcome NOT IN ('cancelled', 'rejected')
    AND ({model:String} = '' OR Model = {model:String}) AND NOT has(Flags, 'clock_fault')
    AND toStartOfMinute(End) >= toDateTime64({since:Int64}, 0, 'UTC')
    AND toStartOfMinute(End) < toDateTime64({until:Int64}, 0, 'UTC')
  GROUP BY minute)
GROUP BY cell
"""
_VERDICTS: Final = """
SELECT Cause AS cause, argMax(Confidence, Share) AS confidence, avg(Share) AS share, argMax(Body, Share) AS body
FROM verdicts FINAL
WHERE Service IN {services:Array(String)} AND State = 'slower' AND Cause NOT IN ('', 'unknown')
  AND Start >= toDateTime64({since:Int64}, 3, 'UTC') AND Start < toDateTime64({until:Int64}, 3, 'UTC')
GROUP BY cause ORDER BY share DESC LIMIT 2
"""


@dataclass(frozen=True, slots=True)
class Where:
    """What links begin with, and the zone in which a reader thinks."""

    base: str
    zone: str


def regressions(
    store: Store, rule: RegressionRule, changes: Sequence[ChangeRow], where: Where, goals: Mapping[str, Goal]
) -> list[Signal]:
    """One signal for each cause among the changes that the rule watches."""
    causes: dict[str, list[ChangeRow]] = {}
    for row in changes:
        wanted = watches(rule, row.metric, row.service, goals) and rule.model in ("", row.model)
        if wanted and row.cause and row.confirmed is not None and _relative(row) >= rule.at_least:
            causes.setdefault(row.cause, []).append(row)
    found = []
    for cause, rows in causes.items():
        standing = [row for row in rows if row.state != "withdrawn"]
        going = [row for row in standing if row.state == "confirmed"]
        told = standing or rows
        since = min(row.onset for row in told)
        until = max((row.until or row.confirmed or row.onset for row in rows), default=since)
        services = sorted({row.service for row in told})
        window = {"services": services, "since": since, "until": until + 1800}
        verdicts = store.query(_VERDICTS, window, role="jobs") if going else []  # of what is over, its beginning told
        causes_of = [_with_evidence(each) for each in verdicts]
        summary, body = message.of_change(told, where.base, where.zone, causes_of, goals)
        if not going:
            body["outcome"] = _outcome(rows, standing)
        known = min(row.confirmed or row.onset for row in rows) * 1000
        found.append(
            Signal(rule.name, cause, bool(going), since * 1000, known, None if going else until * 1000, summary, body)
        )
    return found


def _outcome(rows: Sequence[ChangeRow], standing: Sequence[ChangeRow]) -> str:
    """How it ended: `recovered`; `accepted`: it lasted until it was usual; `withdrawn`: late data undid it."""
    if not standing:
        return "withdrawn"
    return "accepted" if any(row.state == "accepted" for row in standing) else "recovered"


def _with_evidence(row: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict's cause with what its window saw for it."""
    causes = orjson.loads(row["body"]).get("causes", ()) if row["body"] else ()
    evidence: list[Any] = next((each.get("evidence", []) for each in causes if each.get("cause") == row["cause"]), [])
    return {"cause": row["cause"], "confidence": row["confidence"], "share": row["share"], "evidence": evidence[:3]}


def _relative(row: ChangeRow) -> float:
    change = (orjson.loads(row.body).get("change") if row.body else None) or {}
    a_ns = float(change.get("a_ns") or 0)
    return float(change.get("change_ns") or 0) / a_ns if a_ns > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Now:
    """A rule on one service as of a minute: its state, the value it is about (ns, or a burn rate) and how many requests
    that is of, out of how many it needs.
    """

    state: limits.State
    value: float
    n: int
    needed: int


def threshold_over(
    store: Store, rule: ThresholdRule, service: str, since_s: int, until_s: int
) -> Iterator[tuple[int, Now]]:
    """For every minute in (since, until]: the percentile of the window that ends there, and what all windows of the
    last `hold` say together.
    """
    window, hold = (max(1, span_ns(text) // _MINUTE_NS) for text in (rule.window, rule.hold))
    first, until = since_s // 60 + 1, until_s // 60
    since = first - window - hold + 1
    parameters = {
        "metric": rule.metric, "service": service, "model": rule.model, "since": since * 60, "until": until * 60,
    }  # fmt: skip
    rows = store.query(_HISTOGRAM, parameters, role="jobs")
    base = min((row["bucket"] for row in rows), default=0)
    histogram = np.zeros((until - since, max((row["bucket"] for row in rows), default=0) - base + 1))
    for row in rows:
        histogram[row["minute"] - since, row["bucket"] - base] += row["n"]
    at, n = limits.sliding_percentile(histogram, window, rule.q)
    values = np.where(at >= 0, 1.02 ** (base + at - 0.5), 0.0)
    above = span_ns(rule.above)
    for index in range(until - first + 1):
        held = slice(index, index + hold)
        state = limits.held(values[held], n[held], above=above, clear=rule.clear_ns, fewest=rule.fewest)
        newest = index + hold - 1
        yield (first + index) * 60, Now(state, float(values[newest]), int(n[newest]), rule.fewest)


def threshold_now(store: Store, rule: ThresholdRule, service: str, until_s: int) -> Now:
    """As of one minute."""
    return next(now for _, now in threshold_over(store, rule, service, until_s // 60 * 60 - 60, until_s))


def threshold(rule: ThresholdRule, service: str, until_s: int, now: Now, where: Where) -> Signal | None:
    """What the rule says of one service as of a minute; None where it says neither yes nor no."""
    if now.state not in ("firing", "clear"):
        return None
    until, hold = until_s // 60 * 60, span_ns(rule.hold) // 10**9
    name = message.METRIC_NAMES[rule.metric]
    summary = (
        f"{message.percentile(rule.q)} {name} of {harmless(service)} is {duration(now.value)}, above {rule.above} for "
        f"{rule.hold} (n = {now.n})"
    )
    body = _body("threshold", service, rule.model, rule.metric, until - hold, until, where)
    body |= {"value_ns": now.value, "n": now.n, "limit_ns": span_ns(rule.above), "quantile": rule.q}
    firing = now.state == "firing"
    return Signal(
        rule.name, f"{rule.name}/{service}", firing, (until - hold) * 1000, until * 1000, None, summary, body
    )  # fmt: skip


def slo_over(store: Store, rule: SloRule, service: str, since_s: int, until_s: int) -> Iterator[tuple[int, Now]]:
    """For every minute in (since, until]: the highest burn rate that both windows of a pair agree on."""
    longest = limits.BURNS[-1][1]
    minutes = until_s // 60 - since_s // 60
    bad, total = slo_minutes(store, rule, service, until_s, longest + minutes)
    for index in range(1, minutes + 1):
        window = slice(index, index + longest)
        state, rate = limits.burning(bad[window], total[window], rule.objective, rule.min_n)
        yield (since_s // 60 + index) * 60, Now(state, rate, int(total[window].sum()), rule.min_n)


def slo_now(store: Store, rule: SloRule, service: str, until_s: int) -> Now:
    """As of one minute."""
    return next(now for _, now in slo_over(store, rule, service, until_s // 60 * 60 - 60, until_s))


def slo(rule: SloRule, service: str, until_s: int, now: Now, where: Where) -> Signal | None:
    """What the rule says of one service as of a minute; None where it says neither yes nor no."""
    if now.state not in ("firing", "clear"):
        return None
    summary = (
        f"{harmless(service)} burns its error budget {now.value:.1f} times too fast "
        f"({message.objective(rule)}, objective {100 * rule.objective:g} %)"
    )
    body = _body("slo", service, rule.model, rule.sli, until_s - 3600, until_s, where)
    body |= {"burn_rate": now.value, "objective": rule.objective, "n": now.n}
    firing, at = now.state == "firing", until_s * 1000
    return Signal(rule.name, f"{rule.name}/{service}", firing, at, at, None, summary, body)


def over_time(
    store: Store, rule: ThresholdRule | SloRule, service: str, since_s: int, until_s: int, where: Where
) -> Iterator[tuple[int, Signal]]:
    """What the rule said of a service at the minutes in (since, until] at which it said anything."""
    if isinstance(rule, ThresholdRule):
        for at, now in threshold_over(store, rule, service, since_s, until_s):
            if signal := threshold(rule, service, at, now, where):
                yield at, signal
    else:
        for at, now in slo_over(store, rule, service, since_s, until_s):
            if signal := slo(rule, service, at, now, where):
                yield at, signal


def slo_minutes(store: Store, rule: SloRule, service: str, until_s: int, minutes: int) -> tuple[Any, Any]:
    """(bad, all) requests of each of the last minutes."""
    until = until_s // 60
    since = until - minutes
    bad, total = np.zeros(minutes), np.zeros(minutes)
    for row in _slo_cells(store, rule, service, since * 60, until * 60, 60):
        bad[row["cell"] - since] += row["bad"]
        total[row["cell"] - since] += row["total"]
    return bad, total


def slo_hours(store: Store, rule: SloRule, service: str, until_s: int, days: int) -> list[tuple[int, int, int]]:
    """(start of the hour in Unix seconds, all requests, bad ones) of the hours of the last days that have any."""
    rows = _slo_cells(store, rule, service, until_s - days * 86_400, until_s, 3600)
    return sorted((int(row["cell"]) * 3600, int(row["total"]), int(row["bad"])) for row in rows)


def _slo_cells(store: Store, rule: SloRule, service: str, since_s: int, until_s: int, cell_s: int) -> Any:
    parameters: dict[str, Any] = {
        "service": service, "model": rule.model, "since": since_s, "until": until_s, "cell": cell_s,
    }  # fmt: skip
    if rule.sli == "per_token":
        return store.query(_BAD_PER_TOKEN, {**parameters, "per_token": span_ns(rule.within)}, role="jobs")
    if rule.sli == "tokens_per_s":
        return store.query(_BAD_TOKENS, {**parameters, "tokens_per_s": rule.tokens_per_s}, role="jobs")
    if rule.sli == "goodput":
        for name, text in (("ttft", rule.ttft_within), ("tpot", rule.tpot_within)):
            parameters[name] = span_ns(text) if text else 1 << 62
        return store.query(_BAD_GOODPUT, parameters, role="jobs")
    parameters["metric"] = "duration" if rule.sli == "availability" else rule.sli
    limit = int(np.floor(np.log(span_ns(rule.within)) / np.log(1.02))) if rule.within else 100_000
    parameters["limit"] = limit
    return store.query(_BAD_FAST if cell_s < 3600 else _BAD_FAST_HOURS, parameters, role="jobs")


def silence(store: Store, rule: SilenceRule, now_ms: int, where: Where) -> list[Signal]:
    """Different states are different alerts: nothing comes from anyone, nothing comes from one service, one that is
    there has no requests, spans are missing. A service that was quiet for more than a day is taken as gone.
    """
    after_ms = span_ns(rule.after) // 10**6
    seen = telemetry(store, now_ms, after_ms=after_ms, lost=rule.lost)
    if not seen.telemetry:
        return []
    newest = max(int(each.last_signal_unix_ns) for each in seen.telemetry) // 10**6
    nothing = seen.state == "no_telemetry"
    found = [_silent(rule, "no_telemetry", "", nothing, newest, now_ms, "no telemetry at all", where)]
    for each in seen.telemetry:
        if rule.service not in ("", each.service) or nothing:  # what is true of all is told once
            continue
        name = harmless(each.service)
        asked, signal = (int(text) // 10**6 for text in (each.last_request_unix_ns, each.last_signal_unix_ns))
        told = (
            ("no_traffic", asked, f"{name} has had no traffic since {moment(asked / 1000, where.zone)}"),
            ("no_telemetry", signal, f"no telemetry of {name} since {moment(signal / 1000, where.zone)}"),
            ("incomplete", now_ms - 3_600_000, f"{100 * each.lost_share:.0f} % of the spans of {name} are missing"),
        )
        for kind, since, words in told:
            found.append(_silent(rule, kind, each.service, each.state == kind, since, now_ms, words, where))
    return found


def _silent(
    rule: SilenceRule, kind: str, service: str, firing: bool, since_ms: int, now_ms: int, words: str, where: Where
) -> Signal:
    body = _body(kind, service, "", "", since_ms // 1000, now_ms // 1000, where)
    return Signal(rule.name, f"{kind}/{service}", firing, since_ms, now_ms, None, words, body)


def _body(kind: str, service: str, model: str, metric: str, since_s: int, until_s: int, where: Where) -> dict[str, Any]:
    return {
        "schema": message.SCHEMA,
        "kind": kind,
        "service": service,
        "model": model,
        "metric": metric,
        "since": {"utc": iso(since_s), "zone": where.zone, "local": moment(since_s, where.zone)},
        "links": {
            "requests": f"{where.base}/requests?service={service}&since={iso(since_s)}&until={iso(until_s)}"
            if service.isidentifier()
            else f"{where.base}/requests?since={iso(since_s)}&until={iso(until_s)}"
        },
    }

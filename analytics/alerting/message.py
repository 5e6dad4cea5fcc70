"""What a message says: one JSON body, which the webhook sends as it is, and its text for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from tailtrace.analytics.alerting.rules import SloRule
from tailtrace.analytics.alerting.text import both, duration, harmless, iso, moment
from tailtrace.analytics.jobs.change_rows import ChangeRow
from tailtrace.analytics.queries.goals import NONE_SET, Goal

SCHEMA: Final = "tailtrace.alert/1"
METRIC_NAMES: Final = {"duration": "duration", "ttft": "TTFT", "tpot": "TPOT"}
_WORDS: Final = {2: "two", 3: "three"}


def percentile(q: float) -> str:
    return f"P{100 * q:g}"


def objective(rule: SloRule) -> str:
    """What is good by it: `ttft within 2s`, `at least 2000 tokens/s`."""
    if rule.sli == "tokens_per_s":
        return f"at least {rule.tokens_per_s:g} tokens/s"
    name = "time a token" if rule.sli == "per_token" else rule.sli
    return f"{name} within {rule.within}" if rule.within else name


def of_change(
    changes: Sequence[ChangeRow],
    base: str,
    zone: str,
    verdicts: Sequence[Mapping[str, Any]] = (),
    goals: Mapping[str, Goal] = NONE_SET,
) -> tuple[str, dict[str, Any]]:
    """Summary and body of the changes of one cause; the one that departs most is told, the others are listed. Of an
    offline service also what its goal is about: time and tokens, where its output is known.
    """
    main = max(changes, key=lambda row: (row.id == row.cause, row.departure))
    # What several routes have in common is told of the service, what one has of that one.
    routes = [row for row in changes if row.route]
    alone = len({row.series[1:] for row in routes}) == 1
    told = max(routes if alone else [row for row in changes if not row.route] or changes, key=_size)
    known = orjson.loads(told.body) if told.body else {}
    change = known.get("change") or {}
    since = min(row.onset for row in changes)
    a_ns, b_ns, delta = (int(change.get(name, 0)) for name in ("a_ns", "b_ns", "change_ns"))
    mix = sum(int(term["change_ns"]) for term in change.get("traffic", ()))
    mix_share = mix / delta if delta else None
    marker = known.get("marker")
    q = float(change.get("q", 0.5))
    n = known.get("n", [0, 0])
    examples = [
        {**each, "at": iso(int(each["start_unix_ns"]) / 1e9), "url": f"{base}/requests/{each['trace_id']}"}
        for each in known.get("examples", ())
    ]
    goal = goals.get(told.service, "online")
    output = known.get("output") or [dict.fromkeys(("per_token_ns", "tokens_per_s"))] * 2
    intervals = known.get("intervals_ns") or [[None, None], [None, None]]
    place = {"service": told.service, "model": told.model} | ({"route": told.route} if told.route else {})
    window = {**place, "since": iso(since - 3600), "until": iso(_end(told))}
    body = {
        "schema": SCHEMA,
        "kind": "regression",
        "service": told.service,
        "model": told.model,
        "route": told.route,
        "metric": told.metric,
        "goal": goal,
        "quantile": q,
        "since": {"utc": iso(since), "zone": zone, "local": moment(since, zone)},
        "before": {"ns": a_ns, "n": n[0], "interval_ns": intervals[0], **output[0]},
        "after": {"ns": b_ns, "n": n[1], "interval_ns": intervals[1], **output[1]},
        "change_ns": delta,
        "interval_ns": [change.get("low_ns"), change.get("high_ns")],
        "enough": not change.get("hollow", True),
        "stage": told.stage,
        "stage_share": told.stage_share,
        "stages": known.get("growth", []),
        "traffic_share": mix_share,
        "conditions": known.get("conditions", []),
        "marker": marker,
        "verdicts": [dict(each) for each in verdicts],
        "affected": [
            {
                "service": row.service,
                "model": row.model,
                "route": row.route,
                "metric": row.metric,
                "state": row.state,
                "on_top": row.on_top,
            }
            for row in sorted(changes, key=lambda row: row.series)
        ],
        "examples": examples,
        "links": {
            "regressions": f"{base}/regressions",
            "requests": f"{base}/requests?{urlencode({**window, 'order': 'slowest'})}",
        },
    }
    version = (
        f" ({harmless(marker['kind'].replace('_', ' '))} {harmless(marker['became'] or marker['text'])})"
        if marker
        else ""
    )
    moved = f"rose from {duration(a_ns)} to {duration(b_ns)}" if change else "rose"
    if goal == "offline" and (made := _made(body["before"], body["after"])):
        moved += f" ({made})"
    name = METRIC_NAMES["duration" if told.metric == "tpot" else told.metric]
    who = " ".join(harmless(each) for each in (told.service, told.route) if each)
    parts = [
        f"{percentile(q)} {name} of {who} {moved} since {moment(since, zone)[-5:]}{version}",
        f"{100 * told.stage_share:.0f} % of it {told.stage}" if told.stage else "no stage stands out",
    ]
    if mix_share is not None:
        parts.append(f"traffic mix explains {f'{100 * mix_share:.0f} %' if mix_share >= 0.005 else 'none of it'}")
    places = {row.series[1:] for row in changes}
    if len(places) > 1:
        parts.append(
            f"{len(places)} services{', models and routes' if any(each[2] for each in places) else ' and models'}"
        )
    if examples:
        parts.append(f"{_WORDS.get(len(examples), len(examples))} trace{'s' if len(examples) > 1 else ''}")
    body["cause"] = main.cause
    return ", ".join(parts), body


def _made(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """`21 ms to 30 ms a token, 950 to 640 tokens/s`; empty where a side's output is unknown."""
    if before.get("per_token_ns") is None or after.get("per_token_ns") is None:
        return ""
    return (
        f"{duration(before['per_token_ns'])} to {duration(after['per_token_ns'])} a token, "
        f"{before['tokens_per_s']:.3g} to {after['tokens_per_s']:.3g} tokens/s"
    )


def _size(row: ChangeRow) -> tuple[bool, float, str]:
    """The change that is told: the one whose percentile is surest and rose most."""
    change = (orjson.loads(row.body).get("change") if row.body else None) or {}
    a_ns, delta = float(change.get("a_ns") or 0), float(change.get("change_ns") or 0)
    return not change.get("hollow", True), delta / a_ns if a_ns > 0 else 0.0, row.id


def _end(row: ChangeRow) -> int:
    return row.until or (row.confirmed or row.suspected) + 600


def text_of(payload: Mapping[str, Any]) -> tuple[str, str]:
    """Title and text of a message for a channel that takes words. Nothing in it is obeyed as markup."""
    event, body = str(payload["event"]), payload.get("body", {})
    if event == "digest":
        lines = [f"- {each['summary']}" for each in payload["alerts"]]
        return f"Tailtrace: {len(lines)} alerts", "\n".join([*lines, "", payload["links"]["alerts"]])
    over = "over: " if body.get("outcome", "recovered") == "recovered" else "closed: "
    word = {"firing": "", "resolved": over, "flapping": "flapping: ", "test": "test: "}[event]
    title = f"Tailtrace: {word}{payload['summary']}"
    zone = body.get("since", {}).get("zone", "UTC")
    lines = [str(payload["summary"])]
    if event == "resolved":
        how = {
            "accepted": "it has lasted for three days and is taken as usual from",
            "withdrawn": "requests that came late show that it was none, as of",
            "gone": "nothing has come from there for a day, it is no longer watched, or the rule is gone, as of",
        }.get(body.get("outcome", ""), "over since")
        lines.append(f"{how} {both(payload['ended_unix_s'], zone)}")
    if event == "flapping":
        lines.append(f"it came back {payload['reopened']} times within an hour; quiet until it is calm for an hour")
    if "since" in body:
        lines.append(f"since {body['since']['utc']} ({body['since']['local']} {body['since']['zone']})")
    if event in ("firing", "flapping"):
        lines += _details(body)
    if event != "resolved":
        lines += [f"{each['at']} {duration(each['duration_ns'])} {each['url']}" for each in body.get("examples", ())]
    lines += [str(link) for link in body.get("links", {}).values()]
    if event != "resolved" and payload.get("mute"):
        lines.append(f"mute: {payload['mute']}, or {payload['links']['alerts']}")
    return title[:250], "\n".join(lines)


def _details(body: Mapping[str, Any]) -> list[str]:
    lines = []
    if body.get("kind") == "regression":
        low, high = body["interval_ns"]
        known = "" if low is None else f", 95 % interval of the change {duration(low)} to {duration(high)}"
        few = "" if body["enough"] else ", few requests for this percentile"
        lines.append(f"{_value(body['before'])} to {_value(body['after'])}{known}{few}")
        lines += [
            f"  {each['stage']}: {duration(each['before_ns'])} to {duration(each['after_ns'])} a request, "
            f"{100 * each['share']:.0f} %"
            for each in body["stages"][:3]
        ]
        if body["traffic_share"] is not None:
            lines.append(f"other traffic: {100 * body['traffic_share']:.0f} %")
        if body["marker"]:
            marker = body["marker"]
            what = harmless(marker["text"] or f"{marker['was']} to {marker['became']}")
            lines.append(f"beside it: {harmless(marker['kind'])} {what} at {iso(marker['time_ms'] / 1000)}")
        for each in body["verdicts"][:2]:
            lines.append(f"cause: {each['cause']} ({each['confidence']}, {100 * each['share']:.0f} %)")
            lines += [f"  {_evidence(one)}" for one in each.get("evidence", ())]
        others = [each for each in body["affected"] if each["service"] != body["service"]]
        if others:
            names = sorted({harmless(each["service"]) for each in others})
            lines.append(f"also: {', '.join(names[:8])}{' and more' if len(names) > 8 else ''}")
    return lines


def _value(side: Mapping[str, Any]) -> str:
    low, high = side.get("interval_ns", (None, None))
    known = f", {'?' if low is None else duration(low)} to {'?' if high is None else duration(high)}"
    return f"{duration(side['ns'])} (n = {side['n']}{known if (low, high) != (None, None) else ''})"


def _evidence(one: Mapping[str, Any]) -> str:
    value, threshold = one.get("value"), one.get("threshold")
    limit = "" if threshold is None else f" (limit {threshold:.4g})"
    shown = value if isinstance(value, str) or value is None else f"{value:.4g}"
    return harmless(f"{one.get('metric', '')} = {shown}{limit}, {one.get('source', '')}")

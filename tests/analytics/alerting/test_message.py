"""What a message says, and that nothing in it is obeyed."""

from __future__ import annotations

from string import ascii_letters, digits
from typing import Any, cast

import orjson

from tailtrace.analytics.alerting.message import of_change, text_of
from tailtrace.analytics.jobs.change_rows import ChangeRow
from tailtrace.analytics.jobs.signals import _with_evidence
from tailtrace.analytics.queries.goals import Goal

HOSTILE = "<!channel> @here [x](http://evil.example) `rm` **b**\n\u202egnp.exe www.evil.example <script>"
SINCE = 1_790_013_720  # 2026-09-21 18:02 UTC
MS = 1_000_000


def change(**columns: Any) -> ChangeRow:
    body = {
        "change": {
            "metric": "ttft", "q": 0.99, "a_ns": 800 * MS, "b_ns": 1400 * MS, "change_ns": 600 * MS, "low_ns": 500 * MS,
            "high_ns": 700 * MS, "traffic": [{"name": "mix", "change_ns": 36 * MS}], "hollow": False,
        },
        "n": [12_000, 1_100],
        "intervals_ns": [[780 * MS, 820 * MS], [1300 * MS, None]],
        "growth": [
            {"stage": "queue", "before_ns": 90.0 * MS, "after_ns": 570.0 * MS, "share": 0.81, "z": 40.0},
            {"stage": "prefill", "before_ns": 300.0 * MS, "after_ns": 410.0 * MS, "share": 0.19, "z": 9.0},
        ],
        "conditions": [],
        "marker": {"kind": "version", "was": "1.8.1", "became": "1.8.2", "text": "", "time_ms": SINCE * 1000},
        "examples": [
            {"trace_id": f"{n:032x}", "start_unix_ns": str((SINCE + 60 + n) * 10**9), "duration_ns": 2_000 * MS}
            for n in range(3)
        ],
    }  # fmt: skip
    made: dict[str, Any] = {
        "id": "c1", "metric": "ttft", "service": "chat", "model": "m", "route": "", "onset": SINCE,
        "suspected": SINCE + 300, "confirmed": SINCE + 600, "until": None, "state": "confirmed", "statistic": "tail",
        "departure": 5.0, "stage": "queue", "stage_share": 0.81, "cause": "c1", "marker": "m1",
        "body": orjson.dumps(body).decode(),
    }  # fmt: skip
    return ChangeRow(**{**made, **columns})


VERDICT = {
    "cause": "kv_full", "confidence": "high", "share": 0.7,
    "body": orjson.dumps(
        {
            "causes": [
                {"cause": "no_work", "evidence": [{"metric": "other", "value": 1.0, "threshold": None, "source": ""}]},
                {
                    "cause": "kv_full",
                    "evidence": [{"metric": "kv_usage", "value": 0.992, "threshold": 0.95, "source": "steps"}],
                },
            ]
        }
    ).decode(),
}  # fmt: skip


def payload(event: str = "firing", **body_of: Any) -> dict[str, Any]:
    summary, body = of_change([change(**body_of)], "https://tt", "Asia/Shanghai", [_with_evidence(VERDICT)])
    return {
        "event": event, "episode": "e1", "rule": "r", "summary": summary, "body": body, "reopened": 0,
        "ended_unix_s": SINCE + 7200, "links": {"alerts": "https://tt/alerts"},
        "mute": "tailtrace alerts mute e1 --until 2h",
    }  # fmt: skip


def test_the_sentence() -> None:
    assert payload()["summary"] == (
        "P99 TTFT of chat rose from 800 ms to 1.4 s since 02:02 (version 1.8.2), 81 % of it queue, "
        "traffic mix explains 6 %, three traces"
    )


def test_the_sentence_of_an_offline_service_names_what_its_goal_is_about() -> None:
    body = orjson.loads(change().body)
    output = [{"per_token_ns": 21.2 * MS, "tokens_per_s": 951.0}, {"per_token_ns": 30.4 * MS, "tokens_per_s": 642.0}]
    rows = {"metric": "duration", "body": orjson.dumps({**body, "output": output}).decode()}
    start = "P99 duration of chat rose from 800 ms to 1.4 s"
    for told, words in (
        ({"chat": "offline"}, f"{start} (21.2 ms to 30.4 ms a token, 951 to 642 tokens/s) since 02:02"),
        ({"other": "offline"}, f"{start} since 02:02"),
    ):
        goals = cast("dict[str, Goal]", told)
        summary, made = of_change([change(**rows)], "https://tt", "Asia/Shanghai", (), goals)
        assert summary.startswith(words)
        assert (made["goal"], made["after"]["per_token_ns"]) == (goals.get("chat", "online"), 30.4 * MS)
    summary, made = of_change([change(metric="duration")], "https://tt", "Asia/Shanghai", (), {"chat": "offline"})
    assert summary.startswith(f"{start} since 02:02")
    assert made["before"]["tokens_per_s"] is None


def test_the_text_has_everything_that_whoever_is_woken_needs() -> None:
    title, text = text_of(payload())
    assert title.startswith("Tailtrace: P99 TTFT of chat rose")
    for line in (
        "since 2026-09-21T18:02:00Z (2026-09-22 02:02 Asia/Shanghai)",
        "800 ms (n = 12000, 780 ms to 820 ms) to 1.4 s (n = 1100, 1.3 s to ?), 95 % interval of the change 500 ms to "
        "700 ms",
        "  queue: 90 ms to 570 ms a request, 81 %",
        "other traffic: 6 %",
        "beside it: version 1.8.1 to 1.8.2 at 2026-09-21T18:02:00Z",
        "cause: kv_full (high, 70 %)",
        "  kv_usage = 0.992 (limit 0.95), steps",
        f"2026-09-21T18:03:01Z 2 s https://tt/requests/{1:032x}",
        "mute: tailtrace alerts mute e1 --until 2h, or https://tt/alerts",
    ):
        assert line in text.splitlines()
    assert "since=2026-09-21T17%3A02%3A00Z" in text


def test_the_end_says_how_it_came() -> None:
    for outcome, words in (
        ("recovered", "over since 2026-09-21 20:02 UTC (2026-09-22 04:02 Asia/Shanghai)"),
        ("accepted", "is taken as usual from 2026-09-21 20:02 UTC"),
        ("withdrawn", "show that it was none, as of 2026-09-21 20:02 UTC"),
        ("gone", "the rule is gone, as of 2026-09-21 20:02 UTC"),
    ):
        made = payload("resolved")
        made["body"]["outcome"] = outcome
        title, text = text_of(made)
        assert title.startswith("Tailtrace: over: " if outcome == "recovered" else "Tailtrace: closed: ")
        assert words in text
        assert "mute:" not in text


def test_hostile_names_are_inert_in_every_line() -> None:
    body = orjson.loads(change().body)
    body["marker"] |= {"became": HOSTILE, "kind": HOSTILE, "text": HOSTILE}
    row = {"service": HOSTILE, "model": HOSTILE, "route": HOSTILE, "stage": "queue"}
    title, text = text_of(payload(**row, body=orjson.dumps(body).decode()))
    own = [line for line in text.splitlines() if line.startswith("https://tt/")]
    assert own
    assert all(set(line) <= set(ascii_letters + digits + ":/?&=%+-._") for line in own)
    text = "\n".join(line for line in text.splitlines() if line not in own)
    for mark in ("<", ">", "@", "[", "](", "`", "**", "\u202e", "http://evil", "www."):
        assert mark not in title
        assert mark not in text
    assert len(title) <= 250

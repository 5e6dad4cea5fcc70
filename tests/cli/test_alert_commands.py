"""`tailtrace alerts` and `tailtrace gate` against a stand-in server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

Run = Callable[..., Any]
NS = 1_790_013_720_000_000_000  # 2026-09-21 18:02 UTC
ALERT = {
    "id": "e1", "rule": "r", "state": "open", "opened_unix_ns": str(NS), "ended_unix_ns": None,
    "muted_until_unix_ns": str(NS), "reopened": 0, "flapping": False, "summary": "P99 TTFT of chat rose\x1b[2J",
    "body": {},
    "messages": [
        {"id": "k", "event": "firing", "channel": "hook", "state": "failed", "attempts": 1, "error": "answered 404"}
    ],
}  # fmt: skip


def change(within: int, low: int, high: int) -> dict[str, Any]:
    return {
        "a": {"n": 900}, "b": {"n": 800},
        "changes": [
            {
                "metric": "duration", "q": 0.95, "a_ns": 1_000_000_000, "b_ns": 1_300_000_000, "within_ns": within,
                "within_low_ns": low, "within_high_ns": high, "hollow": False,
                "stages": [{"name": "queue", "change_ns": within}],
            }
        ],
    }  # fmt: skip


def test_the_list_shows_what_became_of_messages_and_obeys_nothing(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/alerts", {"alerts": [ALERT], "total": 1, "next": None})
    outcome = tailtrace("alerts", "list", "--state", "open", "--url", stub.url)
    assert outcome.code == 0
    assert "e1  open          2026-09-21 18:02" in outcome.out
    assert "firing to hook: failed: answered 404" in outcome.out
    assert "\x1b" not in outcome.out
    assert parse_qs(urlsplit(stub.asked[0][1]).query) == {"state": ["open"]}


def test_a_replay_prints_when_it_would_have_fired(tailtrace: Run, stub: Any) -> None:
    fired = [{"since_unix_ns": str(NS), "until_unix_ns": None, "summary": "slow"}]
    stub.json("/api/v1/rules/test", {"rule": "r", "since_unix_ns": str(NS), "until_unix_ns": str(NS), "fired": fired})
    outcome = tailtrace("alerts", "test", "r", "--since", "2026-09-21T00:00:00Z", "--url", stub.url)
    assert outcome.out.splitlines()[0] == "2026-09-21 18:02 to on  slow"
    assert outcome.out.splitlines()[1].startswith("fired 1 times, ")
    method, path, _, body = stub.asked[0]
    assert (method, json.loads(body)) == ("POST", {"name": "r"})
    assert parse_qs(urlsplit(path).query) == {"since": ["2026-09-21T00:00:00Z"]}


def test_mute_and_acknowledge(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/alerts/e1/mute", ALERT)
    stub.json("/api/v1/alerts/e1/acknowledge", {**ALERT, "state": "acknowledged"})
    assert tailtrace("alerts", "mute", "e1", "--until", "2h", "--url", stub.url).out == (
        "muted until 2026-09-21 18:02 UTC\n"
    )
    assert json.loads(stub.asked[0][3]) == {"until": "2h"}
    assert tailtrace("alerts", "acknowledge", "e1", "--url", stub.url).out == "acknowledged\n"
    assert tailtrace("alerts", "mute", "none", "--url", stub.url).code == 4


def test_a_test_message_says_whether_it_was_taken(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/channels/on%20call/test", {"delivered": True, "error": None})
    stub.json("/api/v1/channels/hook/test", {"delivered": False, "error": "answered 404"})
    taken = tailtrace("alerts", "send-test", "on call", "--url", stub.url)
    assert (taken.code, taken.out) == (0, "delivered\n")
    refused = tailtrace("alerts", "send-test", "hook", "--url", stub.url)
    assert (refused.code, refused.out) == (1, "not delivered: answered 404\n")
    assert tailtrace("alerts", "send-test", "none", "--url", stub.url).code == 4


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (change(300_000_000, 200_000_000, 400_000_000), 1, "slower: version 1 (n = 900) to 2 (n = 800)"),
        (change(10_000_000, -20_000_000, 40_000_000), 0, "no slower than allowed"),
        (change(100_000_000, -200_000_000, 400_000_000), 5, "cannot tell yet"),
        ({"a": {"n": 0}, "b": {"n": 0}, "changes": []}, 5, "too few requests"),
    ],
)
def test_the_gate_s_exit_code_is_its_verdict(
    tailtrace: Run, stub: Any, answer: dict[str, Any], code: int, words: str
) -> None:
    stub.json("/api/v1/compare", answer)
    arguments = ("gate", "--service", "chat", "--baseline", "version=1", "--candidate", "version=2", "--url", stub.url)
    outcome = tailtrace(*arguments)
    assert (outcome.code, words in outcome.out) == (code, True)
    assert json.loads(tailtrace(*arguments, "--json").out)["exit_code"] == code
    asked = parse_qs(urlsplit(stub.asked[0][1]).query)
    assert (asked["by"], asked["a"], asked["b"]) == (["version"], ["1"], ["2"])


def test_the_gate_compares_values_of_one_attribute(tailtrace: Run, stub: Any) -> None:
    outcome = tailtrace(
        "gate", "--service", "c", "--baseline", "version=1", "--candidate", "model=2", "--url", stub.url
    )
    assert (outcome.code, "with one attribute" in outcome.err) == (2, True)

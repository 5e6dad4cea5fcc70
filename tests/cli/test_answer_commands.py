"""The statistical commands against a stand-in for the API: what is asked, and the figures that must be read at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

Run = Callable[..., Any]
S = 1_000_000_000


def part(stage: str, ns: int, share: float) -> dict[str, Any]:
    return {"stage": stage, "duration_ns": ns, "share": share, "low_share": share - 0.02, "high_share": share + 0.02}


ATTRIBUTION = {
    "metric": "duration", "q": 0.95, "n": 5000, "value_ns": 2 * S, "low_ns": S, "high_ns": 3 * S, "hollow": False,
    "stages": [part("queue", 3 * S // 2, 0.75), part("decode", S // 2, 0.25)], "no_interval": None,
}  # fmt: skip
CHANGE = {
    "metric": "duration", "q": 0.95, "a_ns": S, "b_ns": 3 * S, "change_ns": 2 * S, "within_ns": 3 * S // 2,
    "traffic": [{"name": "mix", "change_ns": S // 2}], "stages": [{"name": "tokenize", "change_ns": 3 * S // 2}],
    "simpson": False, "hollow": False,
}  # fmt: skip
ANSWERS: dict[str, dict[str, Any]] = {
    "attribution": ATTRIBUTION,
    "compare": {
        "a": {"n": 10}, "b": {"n": 20}, "strata": 3, "common_a": 1.0, "common_b": 0.9, "changes": [CHANGE],
        "conditions": [{
            "name": "engine_version", "a": [{"value": "0.31", "share": 1.0}], "b": [{"value": "0.32", "share": 1.0}],
        }],
    },
    "slow": {
        "reason": None, "slow": 50, "rest": 950, "threshold_ns": 3 * S, "extra_ns": 2 * S,
        "stages": [{"stage": "queue", "slow_ns": 2 * S, "rest_ns": S, "extra_ns": S, "share": 0.5}],
        "attributes": [{"name": "replica", "value": "b", "slow": 0.9, "rest": 0.5, "delta": 0.4, "low": 0.3,
                        "high": 0.5, "clear": True}],
    },
    "whatif": {
        "n": 100, "method": "replay", "replicas_now": 2, "replicas_then": 3, "load_now": 0.9, "load_then": 0.6,
        "stable": True, "base_error": 0.01, "assumptions": ["first come first served"], "reason": None,
        "predictions": [{"metric": "ttft", "q": 0.95, "now_ns": 4 * S, "predicted_ns": S, "retime_ns": 4 * S,
                         "hollow": False}],
    },
    "replicas": {
        "reason": None, "load": 0.5, "imbalance": 1.4, "capacity": {
            "factor": 2.0, "per_second_left": 1.5, "tokens_per_second_left": 900.0,
        },
        "replicas": [{"replica": "r1", "requests": 7, "work_share": 0.7, "busy": 0.6, "queued_tokens": 12.0,
                      "queue_p95_ns": S, "speed": 1.1}],
    },
    "tokens": {
        "first_share": 0.2, "ttft": [{**ATTRIBUTION, "metric": "ttft"}], "tpot": [], "stalled": 0.01,
        "gaps": [{"q": 0.5, "value_ns": S // 50}],
    },
}  # fmt: skip
SHOWN = {
    "attribution": ["P95 of api is 2.000 s", "5000 requests", "queue", "75.0 %", "73.0 % to 77.0 %"],
    "compare": ["differs: engine_version: 0.31 100.0 % -> 0.32 100.0 %", "+2.000 s", "tokenize +1.500 s"],
    "slow": ["50 requests of 3.000 s and more", "replica b", "90.0 %", "+0.40 [+0.30 to +0.50]"],
    "whatif": ["100 requests replayed on 3 replicas (now 2)", "90.0 % -> 60.0 %", "-3.000 s", "assumed: first come"],
    "replicas": ["1.40 times the mean work", "r1", "until P95 doubles: 1.50 requests/s and 900 tokens/s more"],
    "tokens": ["20.0 % of P95 lies before the first token", "TTFT P95", "P50 20.00 ms", "1.0 % of requests stall"],
}


@pytest.mark.parametrize("command", list(ANSWERS))
def test_the_answer_is_shown(tailtrace: Run, stub: Any, command: str) -> None:
    stub.json(f"/api/v1/{command}", ANSWERS[command])
    outcome = tailtrace(command, "api", "--range", "6h", "--filter", "model=m", "--url", stub.url)
    assert outcome.code == 0, outcome.err
    flat = " ".join(outcome.out.split())
    for text in SHOWN[command]:
        assert text in flat
    asked = parse_qs(urlsplit(stub.asked[0][1]).query)
    assert (asked["service"], asked["range"], asked["filter"]) == (["api"], ["6h"], ["model=m"])


@pytest.mark.parametrize("command", list(ANSWERS))
def test_json_is_the_api_s(tailtrace: Run, stub: Any, command: str) -> None:
    stub.json(f"/api/v1/{command}", ANSWERS[command])
    outcome = tailtrace(command, "api", "--json", "--url", stub.url)
    assert json.loads(outcome.out) == ANSWERS[command]


def test_what_if_sends_the_change(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/whatif", ANSWERS["whatif"])
    tailtrace(
        "whatif", "api", "--stage", "prefill=0.5", "--stage", "queue=0", "--replicas", "1", "--startup", "90s",
        "--rate", "1.5", "--url", stub.url,
    )  # fmt: skip
    asked = parse_qs(urlsplit(stub.asked[0][1]).query)
    assert asked["stage"] == ["prefill=0.5", "queue=0"]
    assert (asked["replicas"], asked["startup"], asked["rate"]) == (["1"], ["90s"], ["1.5"])


def test_what_is_refused_is_one_line_and_code_2(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/slow", {"error": {"code": "rejected", "message": "there is no attribute 'colour'"}}, 400)
    outcome = tailtrace("slow", "api", "--filter", "colour=red", "--url", stub.url)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "tailtrace: there is no attribute 'colour'\n"

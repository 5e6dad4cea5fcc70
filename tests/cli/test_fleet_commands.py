"""`gpu-idle`, `batch-curve` and `root-cause` against a stand-in for the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

Run = Callable[..., Any]
S = 1_000_000_000
MS = 1_000_000

CELLS = [
    {"state": "busy", "cause": "decode_memory", "busy": 1.0},
    {"state": "idle", "cause": "tokenizer_thread", "busy": 0.0},
    {"state": "idle", "cause": "no_work", "busy": 0.3},
    {"state": "no_data", "cause": "unknown", "busy": None},
]
ANSWERS: dict[str, dict[str, Any]] = {
    "gpu-idle": {
        "since_unix_ns": "0", "until_unix_ns": str(60 * S), "gpus": 20, "missing": ["engine steps"],
        "totals": [
            {"state": "idle", "cause": "tokenizer_thread", "ns": 600 * S, "share": 0.5},
            {"state": "busy", "cause": "decode_memory", "ns": 480 * S, "share": 0.4},
            {"state": "idle", "cause": "no_work", "ns": 60 * S, "share": 0.05},
            {"state": "no_data", "cause": "unknown", "ns": 60 * S, "share": 0.05},
        ],
        "lanes": [{"gpu": f"GPU-{k:02d}\x1b[2J", "replica": "chat-0", "cells": CELLS} for k in range(20)],
    },
    "batch-curve": {
        "fixed_ns": 20 * MS, "per_sequence_ns": 2 * MS, "knee": 10, "most_tokens_per_second": 500.0, "steps": 900,
        "mixed_steps": 100, "limited": 0.25, "reason": None,
        "points": [
            {"batch": k, "n": 30, "step_p50_ns": (20 + 2 * k) * MS, "step_p95_ns": 50 * MS, "waiting": 1.5,
             "tokens_per_second": 1000 * k / (20 + 2 * k), "kv_usage": None if k == 1 else 0.5}
            for k in range(1, 12)
        ],
    },
    "root-cause": {
        "requests": 40, "reference_requests": 90, "reason": None,
        "suspects": [{"service": "cart\x1b", "extra_ns": 12 * MS, "share": 0.9},
                     {"service": "gateway", "extra_ns": -3 * MS, "share": 0.0}],
    },
}  # fmt: skip
SHOWN = {
    "gpu-idle": [
        "20 GPUs over 60.00 s: 40.0 % busy, 55.0 % idle, 5.0 % without data",
        "a 600.0 s 50.0 % idle, waiting for: one tokenizer thread is hot",
        "chat-0 █▁▃?", "4 more GPUs are not drawn", "missing: engine steps",
    ],
    "batch-curve": [
        "a decode step takes 20.00 ms and 2.000 ms a sequence; the knee is at 10: half of the 500 tokens/s",
        "10 30 40.00 ms 50.00 ms 250", "<- knee",
        "900 steps, 100 of them with prompts", "in 25.0 % requests were waiting",
    ],
    "root-cause": ["40 requests of api against 90 before: most of the time was gained by cart", "+12.00 ms", "90.0 %"],
}  # fmt: skip


@pytest.mark.parametrize("command", list(ANSWERS))
def test_it_is_read_at_once(tailtrace: Run, stub: Any, command: str) -> None:
    stub.json(f"/api/v1/{command}", ANSWERS[command])
    outcome = tailtrace(command, "api", "--range", "6h", "--url", stub.url)
    assert outcome.code == 0, outcome.err
    flat = " ".join(outcome.out.split())
    for text in SHOWN[command]:
        assert text in flat
    assert "\x1b" not in outcome.out
    assert outcome.out.count("\n") < 45
    asked = parse_qs(urlsplit(stub.asked[0][1]).query)
    assert (asked["service"], asked["range"]) == (["api"], ["6h"])


@pytest.mark.parametrize("command", list(ANSWERS))
def test_json_is_what_the_api_said(tailtrace: Run, stub: Any, command: str) -> None:
    stub.json(f"/api/v1/{command}", ANSWERS[command])
    assert json.loads(tailtrace(command, "api", "--json", "--url", stub.url).out) == ANSWERS[command]


@pytest.mark.parametrize(
    ("command", "answer", "said"),
    [
        ("gpu-idle", {**ANSWERS["gpu-idle"], "gpus": 0}, "api: no GPU is known to have served it in this range"),
        ("batch-curve", {**ANSWERS["batch-curve"], "points": [], "reason": "no engine steps in this range"},
         "api: no engine steps in this range"),
        ("batch-curve", {**ANSWERS["batch-curve"], "knee": None}, "a larger batch still pays"),
        ("root-cause", {**ANSWERS["root-cause"], "suspects": [], "reason": "1 and 0 requests; 20 of each are needed"},
         "api: 1 and 0 requests; 20 of each are needed"),
    ],
)  # fmt: skip
def test_nothing_to_show_says_why(tailtrace: Run, stub: Any, command: str, answer: dict[str, Any], said: str) -> None:
    stub.json(f"/api/v1/{command}", answer)
    assert said in tailtrace(command, "api", "--url", stub.url).out

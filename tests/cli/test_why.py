"""`why`, `lab list` and the verdict line of `explain`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tailtrace.cli.commands.why import headline, verdict_line

Run = Callable[..., Any]
VERDICT = {
    "cause": "throttled", "share": 0.91, "confidence": "high", "window": ["1", "2"], "missing": [], "reason": "",
    "evidence": [{"metric": "share of time with clocks cut", "value": 0.99, "threshold": 0.05, "source": "NVML"}],
    "alternatives": [{"cause": "longer_output", "share": 0.08}],
}  # fmt: skip
SIDE = {
    "since_unix_ns": "1700000000000000000", "until_unix_ns": "1700000900000000000", "requests": 500, "errors": 0,
    "per_second": 0.55, "mean_ns": 2_000_000_000, "ttft_mean_ns": 150_000_000, "input_tokens": 1000.0,
    "output_tokens": 200.0, "output_tokens_per_second": 110.0, "gpu_seconds_per_token": 0.036,
}  # fmt: skip
CAUSE = {"cause": "throttled", "stages": ["decode"], "ns": 900_000_000, "share": 0.91, "reason": "",
         "evidence": VERDICT["evidence"]}  # fmt: skip
QUIET = {"state": "out", "share": 0.0, "causes": [], "before_ns": 0, "during_ns": 0, "note": "",
         "evidence": []}  # fmt: skip
ANSWER = {
    "service": "chat\x1b[2J", "goal": "offline", "goal_guessed": True,
    "figures": [{"metric": "output tokens/s", "before": 110.0, "during": None, "better": "higher"}],
    "state": "slower", "view": "whole", "slow_part": "tokens",
    "excess_ns": 1_000_000_000, "relative": 0.5, "verdict": VERDICT, "causes": [CAUSE], "before": SIDE, "during": SIDE,
    "missing": ["host counters"],
    "steps": [
        {**QUIET, "step": "queue in the engine"},
        {**QUIET, "step": "CPU", "state": "no_data", "note": "no host counters"},
        {**QUIET, "step": "model", "state": "in", "share": 0.91, "causes": [CAUSE]},
        {**QUIET, "step": "logs and engine metrics", "state": "in", "note": "9 errors, 0 warnings", "evidence": [
            {"metric": "error log lines", "value": 9.0, "threshold": 0.5, "source": "the reference"},
        ]},
    ],
    "clues": {
        "findings": [1], "patterns": [{"severity": "error", "service": "chat", "pattern": "slot # lost\x1b[2J", "n": 9,
                                       "before": 2, "traced": 1, "trace_id": "ab" * 16}],
    },
}  # fmt: skip
IDLE = {
    "gpus": 8, "totals": [{"state": "busy", "cause": "throttled", "ns": 90, "share": 0.9},
                          {"state": "idle", "cause": "no_work", "ns": 10, "share": 0.1}], "stretches": [],
}  # fmt: skip


def test_why_reads_in_order_with_evidence(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/why", ANSWER)
    stub.json("/api/v1/gpu-idle", IDLE)
    out = tailtrace("why", "chat", "--since", "15m", "--url", stub.url).out
    assert "slower by 1.000 s a request (50.0 %); tokens after the first are slow" in out
    assert "goal offline (guessed): output tokens/s 110 -> -" in out
    assert "verdict: GPU clocks are throttled (91.0 %, high confidence); else answers are longer 8.0 %" in out
    assert "ruled out  queue in the engine" in out
    assert "no data    CPU  (no host counters)" in out
    assert "share of time with clocks cut: 0.99 against 0.05" in out
    assert "ruled in   logs and engine metrics  (9 errors, 0 warnings)" in out
    assert "error log lines: 9 against 0.5" in out
    assert f"9 x error from chat (before: 2): slot # lost\N{REPLACEMENT CHARACTER}[2J  trace {'ab' * 16}" in out
    assert "8 GPUs: 90.0 % busy (GPU clocks are throttled), 10.0 % idle (no work arrived)" in out
    assert "\x1b" not in out
    assert "range=15m" in stub.asked[0][1]


def test_why_as_json_holds_both_answers(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/why", ANSWER)
    stub.json("/api/v1/gpu-idle", IDLE)
    told = json.loads(tailtrace("why", "chat", "--url", stub.url, "--json").out)
    assert told["why"]["verdict"]["cause"] == "throttled"
    assert told["gpu_idle"]["gpus"] == 8


def test_nothing_slower_is_said(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/why", {**ANSWER, "state": "as_before", "verdict": None})
    stub.json("/api/v1/gpu-idle", {**IDLE, "totals": [], "gpus": 0})
    out = tailtrace("why", "chat", "--url", stub.url).out
    assert "not slower than before" in out
    assert "0 GPUs: none seen" in out


def test_unknown_gives_its_reason() -> None:
    line = verdict_line(
        {**VERDICT, "cause": "unknown", "confidence": "low", "reason": "no counters", "alternatives": []}
    )
    assert line == "unknown (91.0 %, low confidence): no counters"


def test_the_lab_lists_its_scenarios(tailtrace: Run) -> None:
    out = tailtrace("lab", "list").out
    assert "throttled              GPU clocks are throttled" in out
    assert json.loads(tailtrace("lab", "list", "--json").out)["no_work"] == "Requests stop arriving"


def test_the_lab_says_what_it_injects(tailtrace: Run) -> None:
    told = json.loads(tailtrace("lab", "truth", "auth_dependency", "--seed", "3", "--until", "1790000000000000000").out)
    (cause,) = told["causes"]
    assert (told["scenario"], cause["code"], cause["stage"], cause["service"]) == (
        "auth_dependency", "auth_dependency", "auth", "gateway",
    )  # fmt: skip
    assert cause["start_unix_ns"] == "1789997600000000000"
    assert cause["added_ns"] > 10**9
    assert "NAME+no_gpm" in tailtrace("lab", "list").out


def test_only_what_is_sure_is_called_the_verdict() -> None:
    assert headline(VERDICT).startswith("verdict: GPU clocks are throttled (91.0 %, high")
    assert headline({**VERDICT, "confidence": "medium"}).startswith("no sure verdict; likeliest: GPU clocks")
    assert headline({**VERDICT, "cause": "unknown", "confidence": "low"}).startswith("verdict: unknown")

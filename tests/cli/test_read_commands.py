"""`requests`, `explain` and `sql` against a stand-in for the API: what is asked, what is shown, how failures read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tailtrace.cli.commands.requests import absolute

Run = Callable[..., Any]
TRACE = "5b8efff798038103d269b633813fc60c"


def row(**changed: Any) -> dict[str, Any]:
    return {
        "trace_id": TRACE,
        "span_id": "eee19b7ec3c1b174",
        "service": "gateway",
        "name": "POST /v1/chat/completions",
        "is_root": True,
        "kind": "request",
        "start_unix_ns": "1700000000123456789",
        "duration_ns": 2_000_000_000,
        "ttft_ns": 1_300_000_000,
        "tpot_ns": 6_300_000,
        "outcome": "ok",
        "streaming": True,
        "input_tokens": 512,
        "output_tokens": 128,
        "n": 1,
        "model": "m",
        "version": "1",
        "replica": "r1",
        "stages": [
            {"stage": "queue", "duration_ns": 1_200_000_000, "share": 0.6, "derived": True},
            {"stage": "decode", "duration_ns": 700_000_000, "share": 0.35, "derived": True},
        ],
        "unexplained_ns": 100_000_000,
        "flags": ["parent_missing"],
        **changed,
    }


def detail(**changed: Any) -> dict[str, Any]:
    table = [
        ("queue", 1_200_000_000, 0.6, 1_200_000_000, True),
        ("decode", 700_000_000, 0.35, 0, True),
        ("unexplained", 100_000_000, 0.05, 100_000_000, False),
    ]
    names = ("stage", "duration_ns", "share", "ttft_duration_ns", "derived")
    segment = {"span_id": "a", "service": "vllm", "name": "llm_request", "edge": "", "derived": True}
    return {
        "trace_id": TRACE,
        "requests": [row()],
        "stage_table": [dict(zip(names, line, strict=True)) for line in table],
        "critical_path": [
            {**segment, "stage": "queue", "start_unix_ns": "1700000000123456789", "duration_ns": 1_200_000_000},
            {**segment, "stage": "decode", "start_unix_ns": "1700000001323456789", "duration_ns": 700_000_000},
        ],
        "conditions": {"model": "llama", "gpu_model": "H200"},
        "simulated": False,
        **changed,
    }


def test_requests_are_listed_with_their_longest_stage(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/requests", {"requests": [row()], "total": 7, "next": None})
    outcome = tailtrace("requests", "--url", stub.url, "--service", "gateway", "--limit", "5")
    assert outcome.code == 0
    _, line, total = outcome.out.splitlines()
    for shown in ("2023-11-14 22:13:20.123", "2.000 s", "1.300 s", "queue 60.0 %", "5.0 %", "ok", TRACE):
        assert shown in line
    assert total == "1 of 7 requests, times in UTC"
    assert parse_qs(urlsplit(stub.asked[0][1]).query) == {"service": ["gateway"], "limit": ["5"]}


def test_json_is_printed_as_it_came(tailtrace: Run, stub: Any) -> None:
    answer = {"requests": [row()], "total": 1, "next": None}
    stub.json("/api/v1/requests", answer)
    assert json.loads(tailtrace("requests", "--url", stub.url, "--json").out) == answer
    stub.json(f"/api/v1/requests/{TRACE}", detail())
    assert json.loads(tailtrace("explain", TRACE, "--url", stub.url, "--json").out) == detail()


def test_the_token_is_sent(tailtrace: Run, stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.json("/api/v1/requests", {"requests": [], "total": 0, "next": None})
    monkeypatch.setenv("TAILTRACE_URL", stub.url)
    monkeypatch.setenv("TAILTRACE_TOKEN", "secret")
    assert tailtrace("requests").code == 0
    assert stub.asked[0][2]["authorization"] == "Bearer secret"


def test_explain_shows_stages_path_and_figures(tailtrace: Run, stub: Any) -> None:
    stub.json(f"/api/v1/requests/{TRACE}", detail())
    out = tailtrace("explain", TRACE, "--url", stub.url).out
    for shown in ("total 2.000 s", "TTFT 1.300 s", "TPOT 6.300 ms", "unexplained 5.0 %", "parent_missing", "llama"):
        assert shown in out
    queue = next(line for line in out.splitlines() if line.startswith("queue"))
    decode = next(line for line in out.splitlines() if line.startswith("decode"))
    assert queue.count("█") == 19  # 0.6 of 32 cells
    assert decode.count("█") == 11
    assert "60.0 %" in queue
    assert any(line.split()[:3] == ["+1.200", "s", "decode"] for line in out.splitlines())


def test_a_missing_first_token_says_why(tailtrace: Run, stub: Any) -> None:
    stub.json(f"/api/v1/requests/{TRACE}", detail(requests=[row(ttft_ns=None, tpot_ns=None, streaming=False)]))
    assert "TTFT not streamed   TPOT -" in tailtrace("explain", TRACE, "--url", stub.url).out


def test_simulated_data_says_so(tailtrace: Run, stub: Any) -> None:
    stub.json(f"/api/v1/requests/{TRACE}", detail(simulated=True))
    assert "simulated data" in tailtrace("explain", TRACE, "--url", stub.url).out


def test_foreign_text_cannot_drive_the_terminal(tailtrace: Run, stub: Any) -> None:
    nasty = row(name="\x1b[2J\x1b]0;owned\x07[bold]x[/bold]", service="a\u202eb\nc")
    stub.json("/api/v1/requests", {"requests": [nasty], "total": 1, "next": None})
    stub.json(f"/api/v1/requests/{TRACE}", detail(requests=[nasty]))
    for arguments in (("requests",), ("explain", TRACE)):
        out = tailtrace(*arguments, "--url", stub.url).out
        assert not set(out) & {"\x1b", "\x07", "\u202e"}
        assert "[bold]x[/bold]" in out


def test_nothing_stored_is_exit_code_4(tailtrace: Run, stub: Any) -> None:
    outcome = tailtrace("explain", TRACE, "--url", stub.url)
    assert (outcome.code, outcome.err) == (4, "tailtrace: nothing is stored there\n")


def test_no_server_is_said_in_one_line(tailtrace: Run) -> None:
    outcome = tailtrace("requests", "--url", "http://127.0.0.1:9")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "tailtrace up" in outcome.err


@pytest.mark.parametrize(("status", "code"), [(400, 2), (401, 2), (503, 1)])
def test_refusals_are_said_in_one_line(tailtrace: Run, stub: Any, status: int, code: int) -> None:
    stub.json("/api/v1/requests", {"error": {"code": "c", "message": "because of this"}}, status)
    outcome = tailtrace("requests", "--url", stub.url)
    assert outcome.code == code
    assert "because of this" in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_empty_list_says_so(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/requests", {"requests": [], "total": 0, "next": None})
    empty = tailtrace("requests", "--url", stub.url)
    assert (empty.code, "no requests are stored" in empty.out) == (0, True)


def test_a_wrong_token_is_told_from_none(tailtrace: Run, stub: Any) -> None:
    stub.json("/api/v1/requests", {"error": {"code": "unauthorized", "message": "a token is needed"}}, 401)
    assert "asks for a token" in tailtrace("requests", "--url", stub.url).err
    wrong = tailtrace("requests", "--url", stub.url, "--token", "guessed")
    assert (wrong.code, "does not know this token" in wrong.err, "guessed" in wrong.err) == (2, True, False)


def test_an_address_that_is_none(tailtrace: Run) -> None:
    assert tailtrace("requests", "--url", "localhost:8050").code == 2


def test_sql_is_tab_separated_with_names_first(tailtrace: Run, stub: Any) -> None:
    answer = {"columns": ["a", "b"], "rows": [[1, "x\ty"], [None, "line\nbreak"]], "truncated": False}
    stub.json("/api/v1/sql", answer)
    outcome = tailtrace("sql", "SELECT 1", "--url", stub.url, "--limit", "9")
    assert outcome.out == "a\tb\n1\tx\\ty\n\\N\tline\\nbreak\n"
    assert json.loads(stub.asked[0][3]) == {"sql": "SELECT 1", "limit": 9}


@pytest.mark.parametrize(
    ("since", "sent"),
    [
        ("15m", str(1_000_000_000_000_000 - 900_000_000_000)),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("17", "17"),
    ],
)
def test_spans_back_from_now_become_times(since: str, sent: str) -> None:
    assert absolute(since, now_ns=1_000_000_000_000_000) == sent

"""Recorded traces of a real vLLM through the product: what a user sees in the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from product_process import wait_until

VLLM = [str(path) for path in sorted((Path(__file__).resolve().parents[1] / "data" / "vllm").glob("*.pb"))]
COUNTS = """
SELECT (SELECT count() FROM otel_traces WHERE ServiceName = 'vllm'),
  (SELECT sum(Sign) FROM requests WHERE Service = 'vllm'),
  (SELECT sum(N) FROM rollup_1m WHERE Service = 'vllm' AND Metric = 'duration')
"""


def test_load_list_explain_and_load_again(start: Callable[..., Any], tailtrace: Callable[..., Any]) -> None:
    server = start().wait_ready()
    loaded = tailtrace("load", *VLLM, "--endpoint", server.endpoint)
    assert (loaded.returncode, loaded.stdout) == (0, "98 spans accepted, 0 rejected\n")

    wait_until("judgement of 78 requests", lambda: server.get("/api/v1/requests?kind=request")["total"] == 78)
    listed = json.loads(tailtrace("requests", "--url", server.url, "--limit", "1000", "--json").stdout)
    assert listed["total"] == len(listed["requests"]) == 78
    assert {row["service"] for row in listed["requests"]} == {"vllm"}
    assert sorted(row["n"] for row in listed["requests"]) == [1] * 70 + [2] * 8
    assert all("parent_missing" in row["flags"] for row in listed["requests"])
    for row in listed["requests"]:
        assert sum(stage["duration_ns"] for stage in row["stages"]) + row["unexplained_ns"] == row["duration_ns"]

    one = max(listed["requests"], key=lambda row: row["duration_ns"])
    explained = json.loads(tailtrace("explain", one["trace_id"], "--url", server.url, "--json").stdout)
    assert explained["requests"][0] == one
    path = explained["critical_path"]
    assert sum(segment["duration_ns"] for segment in path) == one["duration_ns"]
    shown = tailtrace("explain", one["trace_id"], "--url", server.url)
    assert shown.returncode == 0
    assert all(stage["stage"] in shown.stdout for stage in one["stages"])

    before = server.sql(COUNTS)
    assert tailtrace("load", *VLLM, "--endpoint", server.endpoint).stdout == loaded.stdout
    doctor = tailtrace("doctor", "--url", server.url, "--endpoint", server.endpoint)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    # The doctor's span came after the repeated ones and has been found, so those have been through as well.
    assert server.sql(COUNTS) == before

    assert tailtrace("explain", "0" * 32, "--url", server.url).returncode == 4
    assert server.stop() == 0

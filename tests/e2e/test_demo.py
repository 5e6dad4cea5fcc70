"""`tailtrace demo`: history, then live requests, and nothing left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from product_process import wait_until


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found |= {int(child)} | descendants(int(child))
    return found


def test_history_then_live_requests_then_nothing_left(start: Callable[..., Any]) -> None:
    demo = start(command="demo", options=("--hours=0.25", "--rate=20")).wait_ready()
    wait_until("history", lambda: demo.get("/api/v1/requests?range=1h&limit=1")["total"] > 0)
    newest = "SELECT count() FROM requests WHERE End > now64(3) - INTERVAL 20 SECOND AND Service = 'gateway'"
    wait_until("live requests", lambda: "live: " in demo.told() and demo.sql(newest)[0][0] > 20)
    # Counters of the same run, on the same time axis: a GPU's reading within a period of each request of the history.
    without = (
        "SELECT count() FROM requests WHERE Simulated AND Kind = 'request' AND End < now64(3) - INTERVAL 60 SECOND"
        " AND toStartOfInterval(End, INTERVAL 10 SECOND) NOT IN (SELECT toStartOfInterval(t, INTERVAL 10 SECOND)"
        " FROM (SELECT arrayJoin([TimeUnix, TimeUnix + INTERVAL 10 SECOND, TimeUnix - INTERVAL 10 SECOND]) AS t"
        " FROM otel_metrics_gauge WHERE MetricName LIKE 'hw.%'))"
    )
    wait_until("counters", lambda: demo.sql("SELECT count() FROM otel_metrics_gauge")[0][0] > 0)
    wait_until("a reading beside every request", lambda: demo.sql(without)[0][0] == 0)
    listed = demo.get("/api/v1/requests?limit=50")["requests"]
    assert all(row["simulated"] for row in listed)

    processes = descendants(demo.process.pid)
    assert len(processes) >= 4  # owner, lab, its gateway, its engine
    assert demo.stop(signal.SIGINT, timeout_s=10) == 0
    wait_until("end of all processes", lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), timeout_s=5)

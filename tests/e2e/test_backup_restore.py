"""A backup of a server under load: restored, it holds all that was acknowledged before, once, and takes repeats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from product_process import wait_until
from test_crashes import SPANS, Sender, body

COUNT = "SELECT count(), uniqExact(SpanId), uniqExact(TraceId) FROM otel_traces WHERE ServiceName = 'crash-test'"
JUDGED = "SELECT sum(Sign), uniqExact(TraceId) FROM requests WHERE Service = 'crash-test'"


def test_what_was_acknowledged_before_the_backup_is_in_it_once(
    start: Callable[..., Any], tailtrace: Callable[..., Any], tmp_path: Path
) -> None:
    server = start().wait_ready()
    senders = [Sender(server, lane, pause_s=0.05) for lane in range(2)]
    wait_until("traffic", lambda: sum(len(sender.acknowledged) for sender in senders) >= 40)
    before = [number for sender in senders for number in list(sender.acknowledged)]
    made = tailtrace("backup", str(tmp_path / "backup"), f"--data={server.data}")
    assert made.returncode == 0, made.stderr
    assert "copied" in made.stdout
    after = [number for sender in senders for number in sender.finish()]
    assert len(after) > len(before)
    refused = tailtrace("restore", str(tmp_path / "backup"), f"--data={server.data}")
    assert (refused.returncode, "not empty" in refused.stderr) == (2, True)
    server.stop()

    assert tailtrace("restore", str(tmp_path / "backup"), f"--data={tmp_path / 'restored'}").returncode == 0
    restored = start(tmp_path / "restored").wait_ready()
    number = "toInt64(SpanAttributes['number'])"
    held = f"SELECT count() FROM otel_traces WHERE {number} IN ({', '.join(map(str, before))})"
    wait_until("what was acknowledged before", lambda: restored.sql(held)[0][0] >= SPANS * len(before))
    assert restored.sql(held)[0][0] == SPANS * len(before)
    spans, distinct, traces = restored.sql(COUNT)[0]
    assert spans == distinct
    # Every span is a trace of its own here, and a request: each is judged once, whenever it had come.
    wait_until("judgement of all", lambda: restored.sql(JUDGED)[0][0] >= traces)
    # New telemetry is stored and judged as if nothing had happened.
    assert restored.send(body(77_000_000))
    wait_until("judgement of new spans", lambda: restored.sql(JUDGED)[0] == [traces + SPANS, traces + SPANS])


def test_without_a_server_or_a_directory_it_says_so(tailtrace: Callable[..., Any], tmp_path: Path) -> None:
    missing = tailtrace("backup", str(tmp_path / "b"), f"--data={tmp_path / 'none'}")
    assert (missing.returncode, "no data directory" in missing.stderr) == (2, True)

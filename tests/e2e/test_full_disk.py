"""A disk that is full to the last byte, under load: refused and said, nothing acknowledged lost, and it goes on."""

from __future__ import annotations

import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from product_process import wait_until
from test_crashes import SPANS, Sender, body

DISK_MIB = 200
MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("a small tmpfs can be mounted by root only")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


class Filler:
    """Takes what is free on a file system, and what becomes free, until told to let go."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "filler"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_until("a full disk", lambda: free(disk) == 0)

    def _run(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            while not self._stop.wait(0.01):
                for size in (MIB, 4096):
                    try:
                        while file.write(bytes(size)) == size:
                            pass
                    except OSError:
                        continue

    def stop(self) -> None:
        """Takes no more."""
        self._stop.set()
        self._thread.join()

    def let_go(self) -> None:
        """Gives back what it took."""
        self.stop()
        self._path.unlink()


def refusal(server: Any, acknowledged: list[int]) -> tuple[int, str, str] | None:
    """Status, Retry-After and text; None where a body was taken: files that end give room for a moment."""
    number = len(acknowledged)
    request = urllib.request.Request(
        f"{server.endpoint}/v1/traces", body(number), {"content-type": "application/x-protobuf"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30):
            acknowledged.append(number)
            return None
    except urllib.error.HTTPError as error:
        return error.code, error.headers["retry-after"], error.read().decode("utf-8", "replace")


def test_a_disk_that_is_full_to_the_last_byte(
    start: Callable[..., Any], disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILTRACE_MIN_FREE_BYTES", str(8 * MIB))
    server = start(disk / "data").wait_ready()
    senders = [Sender(server, lane) for lane in range(1, 4)]
    wait_until("acknowledgements", lambda: sum(len(sender.acknowledged) for sender in senders) > 100)

    # Full while it works: refused with the reason, and what is only read works.
    filler = Filler(disk)
    acknowledged: list[int] = []
    code, retry_after, reason = wait_until("a refusal", lambda: refusal(server, acknowledged))
    assert (code, retry_after) == (503, "30")
    assert "the disk is nearly full" in reason or "No space left" in reason
    assert server.get("/readyz")["status"] == "ready"
    assert server.sql("SELECT count() > 0 FROM otel_traces") == [[1]]
    acknowledged += [number for sender in senders for number in sender.finish()]

    # Killed, and started on the full disk with a journal that cannot be stored: it comes up and says the same.
    server.kill()
    again = start(disk / "data").wait_ready()
    assert wait_until("a refusal", lambda: refusal(again, acknowledged))[0] == 503
    assert again.get("/readyz")["status"] == "ready"

    # Room comes back: it goes on by itself, and all that was acknowledged is there once.
    filler.let_go()
    wait_until("an acknowledgement", lambda: refusal(again, acknowledged) is None)
    ids = "toUInt64(SpanAttributes['number'])"
    of_ours = f"FROM otel_traces WHERE {ids} IN ({', '.join(map(str, acknowledged))})"
    wait_until("storing", lambda: again.sql(f"SELECT count() {of_ours}")[0][0] >= SPANS * len(acknowledged))
    assert again.sql(f"SELECT count(), uniqExact(SpanId) {of_ours}") == [[SPANS * len(acknowledged)] * 2]
    stored = again.sql("SELECT count() FROM otel_traces")
    wait_until("judging", lambda: again.sql("SELECT sum(Sign) FROM requests") == stored)
    assert again.stop() == 0

    # Full with data of its own, and a lower budget: the start makes room with what was kept for that.
    filler = Filler(disk)
    filler.stop()
    monkeypatch.setenv("TAILTRACE_STORAGE_BUDGET_BYTES", "1")
    last = start(disk / "data").wait_ready()
    wait_until("spans dropped", lambda: last.sql("SELECT count() FROM otel_traces") == [[0]])
    assert last.sql("SELECT sum(Sign) FROM requests") == stored
    filler.let_go()

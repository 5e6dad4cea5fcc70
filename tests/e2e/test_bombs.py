"""Forty compressed bombs at once cost time and no memory, and good bodies are taken meanwhile."""

from __future__ import annotations

import gzip
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test_crashes import body

BOMBS = 40
MIB = 1024 * 1024


def resident_mib(pid: int, field: str) -> float:
    """VmRSS or VmHWM of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


def test_forty_bombs_at_once(start: Callable[..., Any]) -> None:
    server = start().wait_ready()
    owner = server.owner_pid()
    bomb = gzip.compress(bytes(256 * MIB), compresslevel=9)
    assert len(bomb) < MIB
    answers: list[int] = []

    def send() -> None:
        request = urllib.request.Request(
            f"{server.endpoint}/v1/traces", bomb,
            {"content-type": "application/x-protobuf", "content-encoding": "gzip"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                answers.append(answer.status)
        except urllib.error.HTTPError as error:
            answers.append(error.code)

    # One by itself first, so that what is loaded for the first of its kind is not counted.
    send()
    for number in range(3):
        assert server.send(body(number))
    Path(f"/proc/{owner}/clear_refs").write_text("5")  # the peak counts from here
    before = resident_mib(owner, "VmRSS")
    threads = [threading.Thread(target=send) for _ in range(BOMBS)]
    for thread in threads:
        thread.start()
    good = [server.send(body(number), timeout_s=60) for number in range(3, 13)]
    for thread in threads:
        thread.join(180)
    assert all(good)
    assert answers == [413] * (BOMBS + 1)
    # The bombs hold 10 GiB. 10 bodies stored meanwhile and the merges of their parts are in the growth too.
    assert resident_mib(owner, "VmHWM") - before < 128

"""The probe on a real loop: it sends its windows, ends with its block, and never disturbs who uses it wrongly."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tailtrace.instrumentation.loop_probe import LoopProbe, watch_loop


def values(batches: list[list[Any]], name: str) -> list[float]:
    return [point.value for batch in batches for point in batch if point.name == name]


def test_a_blocked_loop_is_seen_with_its_lag() -> None:
    sent: list[list[Any]] = []

    async def main() -> None:
        with LoopProbe(asyncio.get_running_loop(), sent.append) as probe:
            probe.start()
            deadline = time.monotonic() + 20
            while not sent and time.monotonic() < deadline:
                time.sleep(0.03)  # the call that blocks
                await asyncio.sleep(0.02)

    asyncio.run(main())
    assert max(values(sent[:1], "tailtrace.host.loop.lag")) > 0.01
    assert values(sent[:1], "tailtrace.host.loop.probe_late")
    assert sum(values(sent[:1], "tailtrace.host.loop.lost")) > 0


def test_outside_a_loop_or_without_instrument_nothing_is_watched(caplog: pytest.LogCaptureFixture) -> None:
    with watch_loop():
        pass

    async def main() -> None:
        with watch_loop():
            pass

    asyncio.run(main())
    assert "outside a running event loop" in caplog.text
    assert "needs instrument() first" in caplog.text

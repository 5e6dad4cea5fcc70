"""The gate's verdict of a change."""

from __future__ import annotations

from typing import Any

import pytest

from tailtrace.cli.commands.gate import FAIL, PASS, UNKNOWN, verdict


def change(within: int, low: int, high: int, *, hollow: bool = False) -> dict[str, Any]:
    return {"a_ns": 1000, "within_ns": within, "within_low_ns": low, "within_high_ns": high, "hollow": hollow}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (change(200, 100, 300), FAIL),
        (change(200, 20, 300), FAIL),
        (change(10, -20, 40), PASS),
        (change(-200, -300, -100), PASS),
        (change(100, -100, 300), UNKNOWN),
        (change(200, 100, 300, hollow=True), UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_verdicts(given: dict[str, Any] | None, code: int) -> None:
    assert verdict(given, 0.05)[0] == code

"""Numbers as the terminal shows them."""

from __future__ import annotations

import pytest

from tailtrace.cli.formats import duration, moment, plain, share


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.000 us"),
        (45_600_000, "45.60 ms"),
        (2_100_000_000, "2.100 s"),
        (123_456_789_000, "123.5 s"),
    ],
)
def test_duration(ns: int | None, shown: str) -> None:
    assert duration(ns) == shown


def test_moment_is_utc() -> None:
    assert moment("1700000000123456789") == "2023-11-14 22:13:20.123"
    assert moment(None) == "-"


def test_share() -> None:
    assert (share(0.1234), share(1.0), share(None)) == ("12.3 %", "100.0 %", "-")


def test_plain_keeps_scripts_and_drops_commands() -> None:
    assert plain("größe 東京 \N{PARTY POPPER}") == "größe 東京 \N{PARTY POPPER}"
    assert plain("a\x1b[1mb\r\n\u202ec") == "a\N{REPLACEMENT CHARACTER}[1mb" + "\N{REPLACEMENT CHARACTER}" * 3 + "c"

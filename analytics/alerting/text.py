"""Words of messages, and telemetry's own words made harmless: they reach chats that obey markup."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

_LONGEST: Final = 120
_LOOKALIKE: Final = str.maketrans(
    {"<": "‹", ">": "›", "`": "'", "*": "∗", "[": "(", "]": ")", "|": "¦", "~": "∼", "@": "＠", "#": "＃"}
)


def harmless(text: object) -> str:
    """Foreign text for a chat: nothing that could be a mention, a link, markup, a line of its own or a trick of
    direction; at most 120 characters.
    """
    plain = "".join(
        c if unicodedata.category(c)[0] not in ("C", "Z") or c == " " else " " for c in str(text)[: 4 * _LONGEST]
    )
    plain = plain.translate(_LOOKALIKE).replace("://", ":∕∕").replace("www.", "www․")
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def duration(ns: float) -> str:
    """Two to three digits and a unit: `1.4 s`, `56 ms`, `890 us`."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(ns) >= factor:
            value = ns / factor
            return f"{value:.3g} {unit}" if abs(value) < 100 else f"{value:.0f} {unit}"
    return f"{ns:.0f} ns"


def moment(unix_s: float, zone: str) -> str:
    """`2026-11-30 14:02`, in a zone."""
    return datetime.fromtimestamp(unix_s, UTC).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


def iso(unix_s: float) -> str:
    """As links hold it: absolute, UTC."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def both(unix_s: float, zone: str) -> str:
    """A moment in UTC, and in the reader's zone where that is another."""
    own = f"{moment(unix_s, 'UTC')} UTC"
    return own if zone == "UTC" else f"{own} ({moment(unix_s, zone)} {zone})"

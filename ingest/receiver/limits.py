"""What one telemetry item and one body may measure. Generous: they stop abuse, not use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tailtrace.ingest.settings import ServerSettings

EARLIEST_UNIX_NS = 1_577_836_800_000_000_000
"""2020-01-01: before it, a time is a unit mistake or a clock that never was set."""

CLOCK_SKEW_NS = 600_000_000_000
"""How far ahead of the receiver's clock a sender's may be."""

IN_FLIGHT_BYTES = 64 * 1024 * 1024
"""Bodies that are being received at once, all together, as sent."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes are bytes of UTF-8; counts are per item (span, link, event, point, resource or scope)."""

    value_bytes: int = 256 * 1024
    key_bytes: int = 1024
    name_bytes: int = 4096
    attributes: int = 1024
    events: int = 1024
    links: int = 1024
    depth: int = 32
    body_bytes: int = 16 * 1024 * 1024
    inflated_bytes: int = 64 * 1024 * 1024
    in_flight_bytes: int = IN_FLIGHT_BYTES
    age_ns: int = 0
    """Items that started longer ago are rejected; 0 means no limit."""
    receive_timeout_s: float = 60.0
    commit_timeout_s: float = 30.0

    @classmethod
    def of(cls, settings: ServerSettings) -> Self:
        """The limits that a server's settings ask for."""
        return cls(
            body_bytes=settings.max_body_bytes,
            inflated_bytes=settings.max_inflated_bytes,
            in_flight_bytes=max(IN_FLIGHT_BYTES, 2 * settings.max_body_bytes),
            age_ns=settings.max_event_age_days * 86_400 * 1_000_000_000,
        )

    def earliest_unix_ns(self, now_unix_ns: int) -> int:
        """The earliest start that is accepted."""
        return max(EARLIEST_UNIX_NS, now_unix_ns - self.age_ns) if self.age_ns else EARLIEST_UNIX_NS

"""Decompression within its limit."""

import asyncio
import gzip
import zlib
from pathlib import Path
from unittest.mock import Mock

import pytest
from otlp_samples import zstd

from tailtrace.errors import Rejected, TooLarge
from tailtrace.ingest.receiver.counters import Counters
from tailtrace.ingest.receiver.inflate import inflate
from tailtrace.ingest.receiver.intake import Intake
from tailtrace.ingest.receiver.limits import Limits

TEXT = b"telemetry " * 1000


def compressed(data: bytes, encoding: str) -> bytes:
    return gzip.compress(data) if encoding == "gzip" else bytes(zstd.compress(data))


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
class TestEach:
    def test_round_trip_to_the_last_byte_of_the_limit(self, encoding: str) -> None:
        assert inflate(compressed(TEXT, encoding), encoding, len(TEXT)) == TEXT

    def test_one_byte_over_the_limit_is_too_large(self, encoding: str) -> None:
        with pytest.raises(TooLarge, match=f"larger than {len(TEXT) - 1} bytes"):
            inflate(compressed(TEXT, encoding), encoding, len(TEXT) - 1)

    def test_several_members_are_one_body_under_one_limit(self, encoding: str) -> None:
        body = compressed(b"a" * 600, encoding) + compressed(b"b" * 600, encoding)
        assert inflate(body, encoding, 1200) == b"a" * 600 + b"b" * 600
        with pytest.raises(TooLarge):
            inflate(body, encoding, 1199)

    def test_larger_than_one_step(self, encoding: str) -> None:
        data = bytes(range(256)) * 20_000
        assert inflate(compressed(data, encoding), encoding, 8_000_000) == data

    def test_a_bomb_stops_at_the_limit(self, encoding: str) -> None:
        bomb = compressed(bytes(64 * 1024 * 1024), encoding)
        assert len(bomb) < 100_000
        with pytest.raises(TooLarge):
            inflate(bomb, encoding, 8 * 1024 * 1024)

    def test_damaged_and_short_bodies(self, encoding: str) -> None:
        body = compressed(TEXT, encoding)
        with pytest.raises(Rejected, match="ends too early"):
            inflate(body[:-5], encoding, 1_000_000)
        with pytest.raises(Rejected, match=f"not {encoding}"):
            inflate(TEXT, encoding, 1_000_000)
        with pytest.raises(Rejected):
            inflate(body + b"tail", encoding, 1_000_000)

    def test_nothing_is_nothing(self, encoding: str) -> None:
        assert inflate(b"", encoding, 10) == b""


def test_a_wrong_checksum_is_refused() -> None:
    body = gzip.compress(TEXT)
    with pytest.raises(Rejected):
        inflate(body[:-8] + zlib.crc32(b"other").to_bytes(4, "little") + body[-4:], "gzip", 1_000_000)


def resident_kib(field: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0])


def test_many_bombs_at_once_cost_the_receiver_time_and_no_memory() -> None:
    """The process around it, with the engine at work, is measured from outside by the end-to-end test."""
    bomb = compressed(bytes(128 * 1024 * 1024), "gzip")

    async def attacked() -> int:
        intake = Intake(Mock(), Limits(), Counters())
        await refused(intake)
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = resident_kib("VmRSS")
        assert all(await asyncio.gather(*(refused(intake) for _ in range(12))))
        return resident_kib("VmHWM") - before

    async def refused(intake: Intake) -> bool:
        with pytest.raises(TooLarge):
            await intake.accept("traces", bytes(bytearray(bomb)), encoding="gzip")
        return True

    assert asyncio.run(attacked()) < 64 * 1024
